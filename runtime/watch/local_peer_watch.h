// LocalPeerWatch: each rank watches the processes of its local peers through the kernel. That needs no connection and
// no answer of any rank: the kernel notifies every watcher of a process's end, even while rank 0 computes. If the
// kernel does not let a rank see another one's process, only rank 0 reports that one's death.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/io/processes.h"
#include "base/task/scope.h"
#include "base/wire/rendezvous_messages.h"

namespace aiacc {

class LocalPeerWatch final : private Root::Owner {
 public:
  class Owner {
   public:
    // At most once for each rank, possibly from inside watch(). The owner knows whether the rank had left in order.
    virtual void local_peer_ended(int rank, const std::string& sentence) = 0;

   protected:
    ~Owner() = default;
  };

  // `firsts[r]` is the lowest rank on rank r's host, checked by the caller; `rank` is this rank. All arguments outlive
  // the watch.
  LocalPeerWatch(Loop& loop, Owner& owner) : loop_(loop), owner_(owner) {}
  void watch(io::Processes& processes, const wire::Roster& roster, const std::vector<std::int32_t>& firsts, int rank);

  // Whether the end of that rank's process is, or was, reported here.
  bool sees(int rank) const noexcept;

 private:
  struct One {
    int rank;
    std::string host_name;
    std::unique_ptr<io::ProcessEnd> end;
    std::optional<Root> root;  // last: its frame refers to the members above
  };
  void root_ended(Root& root, std::exception_ptr error) noexcept override;

  Loop& loop_;
  Owner& owner_;
  Stop stop_;
  std::list<One> watched_;
};

}  // namespace aiacc
