// NeighbourWatch: the processes of a host's ranks tell each other's end. No connection is needed for it, nobody has to answer,
// and no other rank: the system of the host sees the end and tells everybody who watches, also while rank 0 computes. Where
// the system does not let a rank see another's process, that one's death is heard from rank 0 alone.
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

class NeighbourWatch final : private Root::Owner {
 public:
  class Owner {
   public:
    // Once a rank, perhaps from within watch(). Whether it had left in order the owner knows.
    virtual void neighbour_ended(int rank, const std::string& sentence) = 0;

   protected:
    ~Owner() = default;
  };

  // `firsts` by rank, the lowest rank of its host, checked by the caller; `rank` is mine. All outlive the watch.
  NeighbourWatch(Loop& loop, Owner& owner) : loop_(loop), owner_(owner) {}
  void watch(io::Processes& processes, const wire::Roster& roster, const std::vector<std::int32_t>& firsts, int rank);

  // The end of that rank's process is told, or was.
  bool sees(int rank) const noexcept;

 private:
  struct One {
    int rank;
    std::string host_name;
    std::unique_ptr<io::ProcessEnd> end;
    std::optional<Root> root;  // last: its frame refers to what stands above
  };
  void root_ended(Root& root, std::exception_ptr error) noexcept override;

  Loop& loop_;
  Owner& owner_;
  Stop stop_;
  std::list<One> watched_;
};

}  // namespace aiacc
