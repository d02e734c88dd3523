// Context: everything of one rank (design decision 2): who it is, its lane, its groups. Nothing here is global; a process
// may hold many. What drives it is outside: a RealContext (runtime/real_context.h) or the simulator.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/task/lane.h"
#include "base/view.h"
#include "runtime/bootstrap.h"
#include "runtime/groups.h"
#include "runtime/progress_watch.h"
#include "runtime/recorder.h"
#include "runtime/runtime_config.h"
#include "transports/mailbox.h"

namespace aiacc {

class Context final : public BirthObserver, private MailboxObserver {
 public:
  // `reporter` hears of operations that are late and of groups that end; it outlives the context.
  Context(Lane& lane, Compute& compute, Birth birth, const RuntimeConfig& config, ProgressWatch::Reporter& reporter);
  ~Context();

  // On the lane's thread. Opens the world; gives up when `stop` is requested.
  Task<void> open(Stop& stop);
  // Returns when no operation runs.
  Task<void> become_idle(Stop& stop);
  // Waits for running operations, closes every group, and stays until no rank of another host needs this one any more.
  // Nothing may be started any more.
  Task<void> close(Stop& stop);

  Group& world() noexcept { return *world_; }
  Groups& groups() noexcept { return groups_; }
  const Member& self() const noexcept { return world_view_->member(rank_); }
  Lane& lane() noexcept { return lane_; }
  Compute& compute() noexcept { return compute_; }
  HostDomain* host() noexcept { return host_.get(); }
  Mailbox* mailbox() noexcept { return mailbox_.get(); }  // null if all ranks share this host
  const RuntimeConfig& config() const noexcept { return config_; }
  const std::string& host_name() const noexcept { return host_name_; }
  // What was done last; any thread may read it.
  Recorder& recorder() noexcept { return recorder_; }
  // Rank of a member of this host in the host's domain.
  int domain_rank_of(const Member& member) const noexcept;

  // For groups, on the lane's thread.
  ProgressWatch& watch() noexcept { return watch_; }
  // The group's first error, at this rank.
  void group_failed(const Group& group, const Error& error) noexcept { reporter_.failed(*this, group, error); }
  void operation_ended() noexcept {
    if (watch_.idle()) idle_.set();
  }

  void on_rank_lost(int rank, std::exception_ptr error) noexcept override;
  bool leaving(int rank) const noexcept override;
  // `bootstrap`, which outlives the context, hears of the rank that this one lost first.
  void tell_losses_to(Bootstrap& bootstrap) noexcept;
  // For groups: why a member cannot be reached, as a sentence; "" if nothing is known to be in the way.
  std::string obstacle(const Member& member) const;
  // For groups: one of them ended because that member is gone.
  void lost_peer(const Member& member) noexcept;

 private:
  void group_aborted(std::uint64_t group, const std::exception_ptr& error) noexcept override;
  Receiving receiving(std::uint64_t group) noexcept override;
  void receiving_told(std::uint64_t group, int rank, const Receiving& said) noexcept override;
  Group* find_group(std::uint64_t id) noexcept;

  Lane& lane_;
  Compute& compute_;
  RuntimeConfig config_;
  std::string job_name_;
  std::string host_name_;
  ViewPtr world_view_;
  int rank_;
  std::unique_ptr<HostDomain> host_;
  std::unique_ptr<MessagePort> port_;
  std::unique_ptr<Mailbox> mailbox_;
  Bootstrap* bootstrap_ = nullptr;  // that is told of the first loss
  int lost_rank_ = kNoPeer;
  Recorder recorder_;
  ProgressWatch::Reporter& reporter_;
  ProgressWatch watch_;
  Event idle_;
  std::unique_ptr<Group> world_;
  Groups groups_;
};

}  // namespace aiacc
