// ReceiveSearch: whether some members of a group receive from each other in a cycle, so that nobody ever sends. One
// member searches: it asks the members that it receives from which members those receive from, and so on, until no new
// member is named (then none of them sends) or one does something else (then it may send). Pure: no I/O.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "transports/control/stragglers.h"

namespace aiacc {

class ReceiveSearch {
 public:
  // Search by member `me` of a group of `size`; `mine` is its own state.
  ReceiveSearch(int me, int size, Receiving mine);

  // The members to ask next; each is returned once.
  std::vector<int> to_ask();
  // The answer of a member; ignored if it was not asked.
  void answered(int rank, const Receiving& said);

  // Some member may send.
  bool is_open() const noexcept { return open_; }
  // All that were named have answered, and all of them only receive.
  bool is_closed() const noexcept;
  // "nobody sends: rank 0 called recv of ...; rank 1 called recv of ..."
  std::string sentence() const;
  std::vector<int> ranks() const;

 private:
  void named_by(const Receiving& said);

  struct Member {
    bool asked = false;
    bool answered = false;
    std::string call;
  };
  int size_;
  bool open_ = false;
  std::map<int, Member> members_;
};

}  // namespace aiacc
