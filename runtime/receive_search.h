// ReceiveSearch: whether some members of a group receive from each other in a circle, so that nobody ever sends. One member
// searches: it learns whom it receives from, whom that one receives from, and so on, until nobody new is named (then none of
// all these sends) or somebody does something else (then it may send). Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "transports/mailbox.h"

namespace aiacc {

class ReceiveSearch {
 public:
  // By member `me` of a group of `size`, which says `mine` of itself.
  ReceiveSearch(int me, int size, Receiving mine);

  // The members to be asked next; each is given once.
  std::vector<int> to_ask();
  // What one of them answered; of members that were not asked it means nothing.
  void told(int rank, const Receiving& said);

  // Somebody may send.
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
