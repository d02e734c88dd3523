// LocalTeam: the members of a group on one host, as calls over several hosts use them. Such a call has three kinds of
// phases on a host: a reduce-scatter, an exchange and an all-gather. An implementation decides how the members reach each
// other: through shared memory (collectives/hier/shm_local_team.h), or through a library for the links between devices.
//
// The phases of one operation run one after another, in the same order on every member. In which order the phases of two
// operations meet depends on when their messages from other hosts arrive, which differs from member to member. Therefore
// operations of one LocalPhases take turns as a whole, from their first phase to their last. A team that has several
// LocalPhases lets as many operations overlap: the phases of one run while another's messages are between hosts. The
// operation's sequence in the group chooses, so that all members choose alike without communication.
#pragma once

#include <cstdint>
#include <span>

#include "base/task/turn_queue.h"
#include "collectives/intra/extents.h"
#include "collectives/operation.h"

namespace aiacc::hier {

// Each phase is an Operation that is part of the whole one (PartOf). It has ended when its result is complete here and no
// other member uses this member's buffers any more. After an error no member stores into them either.
class LocalPhases {
 public:
  LocalPhases() = default;
  LocalPhases(const LocalPhases&) = delete;
  LocalPhases& operator=(const LocalPhases&) = delete;
  virtual ~LocalPhases() = default;

  // Reduces phase.send. The first owners.size() members own extents of it, and each gets the stream of its own in `into`,
  // which may be the extent in phase.send itself if it is a single extent and no partial sum.
  virtual Task<void> reduce_scatter(Operation& phase, std::span<const intra::Extents> owners, Buffer into) = 0;
  // A whole collective among the members: a barrier, reduce, broadcast, all-gather, all-to-all, gather or scatter. Its
  // root is a rank of the group; its blocks are indexed by local rank.
  virtual Task<void> exchange(Operation& phase) = 0;
  // Each of the first owners.size() members has its extents of phase.recv; afterwards every member has all of them.
  virtual Task<void> all_gather(Operation& phase, std::span<const intra::Extents> owners) = 0;
  // Memory of this member for packed tensors, with which phases work best; kept until the team ends. Without bytes if the
  // implementation has no such memory.
  virtual Buffer pack_memory(std::size_t bytes) = 0;

  TurnQueue& turns() noexcept { return turns_; }

 private:
  TurnQueue turns_;
};

class LocalTeam {
 public:
  LocalTeam() = default;
  LocalTeam(const LocalTeam&) = delete;
  LocalTeam& operator=(const LocalTeam&) = delete;
  virtual ~LocalTeam() = default;

  virtual LocalPhases& phases_of(std::uint64_t sequence) noexcept = 0;

  // After a failure members may disagree on which phases have run, so no later operation may run here.
  void fail() noexcept { failed_ = true; }
  bool failed() const noexcept { return failed_; }

 private:
  bool failed_ = false;
};

}  // namespace aiacc::hier
