// runtime: Context, which is one rank as an object, and how it is created and driven. Rooms below: bootstrap,
// rendezvous, group, watch, info. Not here: the algorithms (collectives) and the C ABI (bindings/c).
//
// Context: all state of one rank (design decision 2): its identity, its lane, its groups. Nothing here is global; a
// process may have many. Its driver is outside: a RealContext (runtime/real_context.h) or the simulator.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/task/lane.h"
#include "base/task/slab_pool.h"
#include "base/view.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/group/registrations.h"
#include "runtime/runtime_config.h"
#include "runtime/watch/path_watch.h"
#include "runtime/watch/progress_watch.h"
#include "runtime/watch/recorder.h"
#include "transports/messenger.h"
#include "transports/service/services.h"

namespace aiacc {

class Group;
class Groups;
class Metrics;
class Timeline;

class Context final : public BootstrapObserver,
                      private Messenger::Observer,
                      private PathWatch::Owner,
                      private Services::Owner {
 public:
  // `reporter` is told of late operations and of groups that end with an error; it outlives the context.
  Context(Lane& lane, Compute& compute, BootstrapResult bootstrapped, const RuntimeConfig& config,
          ProgressWatch::Reporter& reporter);
  ~Context();

  // On the lane's thread. Opens the world; ends early when `stop` is requested.
  Task<void> open(Stop& stop);
  // Returns when no operation runs.
  Task<void> become_idle(Stop& stop);
  // Waits for running operations, closes every group, and returns when no rank of another host needs this one any more.
  // Nothing may be started afterwards.
  Task<void> close(LeaveDeadline& deadline, Stop& stop);

  Group& world() noexcept { return *world_; }
  Groups& groups() noexcept { return *groups_; }
  const Member& self() const noexcept { return world_view_->member(rank_); }
  Lane& lane() noexcept { return lane_; }
  Compute& compute() noexcept { return compute_; }
  HostDomain* host() noexcept { return host_.get(); }
  Messenger* messenger() noexcept { return messenger_.get(); }  // null if all ranks share this host
  // Messages to components of other ranks, on the lane's thread. While this rank has a subscription, the lane's helper thread
  // serves it when no call of the program drives the lane.
  Services& services() noexcept { return services_; }
  const RuntimeConfig& config() const noexcept { return config_; }
  // Null: the job has none.
  const inter::AlgorithmTable* algorithm_table() const noexcept {
    return algorithm_table_ ? &*algorithm_table_ : nullptr;
  }
  const std::string& transport() const noexcept { return transport_; }  // between hosts: "tcp"; "" on one host
  const std::string& host_name() const noexcept { return host_name_; }
  // The last operations; any thread may read it.
  Recorder& recorder() noexcept { return recorder_; }
  // For operations; any thread.
  SlabPool& operation_pool() noexcept { return operation_pool_; }
  // For calls that wait without one: who holds the lane takes from them.
  SlabPool& waiting_pool() noexcept { return waiting_pool_; }
  SlabPool& remote_message_pool() noexcept { return remote_message_pool_; }
  // A trace of what happens here, and the sums of what components count (runtime/timeline, runtime/metrics).
  Timeline& timeline() noexcept { return *timeline_; }
  Metrics& metrics() noexcept { return *metrics_; }
  // Registered user memory; any thread.
  Registrations& registrations() noexcept { return registrations_; }
  // The rank in the host's domain of a member on this host.
  int domain_rank_of(const Member& member) const noexcept;

  // For groups, on the lane's thread.
  ProgressWatch& watch() noexcept { return watch_; }
  // Reports the group's first error at this rank.
  void group_failed(const Group& group, const Error& error) noexcept { reporter_.failed(*this, group, error); }
  void operation_ended() noexcept {
    if (watch_.idle()) idle_.set();
  }

  void on_rank_lost(int rank, std::exception_ptr error) noexcept override;
  void on_hosts_updated(std::uint8_t what) noexcept override { hosts_updated_ |= what; }
  // What aiaccrun has said of the next world since this one began; 0: nothing.
  std::uint8_t hosts_updated() const noexcept { return hosts_updated_; }
  bool leaving(int rank) const noexcept override;
  // Reports the first rank that this one loses to `bootstrap`, which outlives the context.
  void tell_losses_to(Bootstrap& bootstrap) noexcept;
  // For groups: why a member cannot be reached, as a sentence; "" if no obstacle is known.
  std::string obstacle(const Member& member) const;
  // For groups: a group ended because that member is lost.
  void lost_peer(const Member& member) noexcept;
  // For groups: a group ended because a path was broken for too long.
  void lost_path(const std::string& sentence) noexcept;
  // For groups: something that the user should know, and that is no error.
  void report(const std::string& sentence) noexcept { reporter_.late(sentence); }
  // The same of what is wanted at level info only.
  bool takes_notes() const noexcept { return reporter_.takes_notes(); }
  void note(const std::string& sentence) noexcept { reporter_.note(sentence); }
  // For what is built on groups: something of theirs is late.
  void report_late(const std::string& sentence) noexcept { reporter_.late(sentence); }

 private:
  void group_aborted(std::uint64_t group, const std::exception_ptr& error) noexcept override;
  Receiving receiving(std::uint64_t group) noexcept override;
  void receiving_reported(std::uint64_t group, int rank, const Receiving& said) noexcept override;
  void path_broken(int rank) noexcept override { paths_.broke(rank); }
  std::optional<BrokenPath> broken_path(int rank) const override { return port_->broken_path(rank); }
  bool rank_is_lost(int rank) const noexcept override { return messenger_->lost(rank); }
  bool waits_for(int rank) override { return !messenger_->mailbox().groups_waiting_for(rank).empty(); }
  void report_path(const std::string& sentence) override { reporter_.late(sentence); }
  void path_lost(int rank, const std::string& sentence) override;
  Group* find_group(std::uint64_t id) noexcept;
  void services_active(bool active) override;

  // Runs while there is a subscription, so that somebody drives the lane.
  struct Serving final : Work {
    void begin() noexcept override {
      begun = true;
      if (over) finish();
    }
    void end() noexcept {
      over = true;
      if (begun) finish();
    }
    bool begun = false;
    bool over = false;
  };

  Lane& lane_;
  Compute& compute_;
  RuntimeConfig config_;
  std::string job_name_;
  std::string host_name_;
  std::string transport_;
  std::optional<inter::AlgorithmTable> algorithm_table_;
  ViewPtr world_view_;
  int rank_;
  std::unique_ptr<HostDomain> host_;
  std::unique_ptr<MessagePort> port_;
  std::list<Serving> serving_;  // the last is running if there is a subscription
  Services services_;
  std::unique_ptr<Messenger> messenger_;  // closes the port
  Bootstrap* bootstrap_ = nullptr;        // receives the first loss
  int lost_rank_ = kNoPeer;
  std::string lost_path_;  // the first
  std::uint8_t hosts_updated_ = 0;
  std::exception_ptr first_loss_;  // of a rank of the world
  Stop* opening_ = nullptr;        // while an elastic job's world opens
  Recorder recorder_;
  SlabPool operation_pool_;
  SlabPool waiting_pool_;
  SlabPool remote_message_pool_;
  Registrations registrations_;
  ProgressWatch::Reporter& reporter_;
  std::unique_ptr<Timeline> timeline_;
  std::unique_ptr<Metrics> metrics_;
  ProgressWatch watch_;
  PathWatch paths_;
  Event idle_;
  std::unique_ptr<Group> world_;
  std::unique_ptr<Groups> groups_;
};

}  // namespace aiacc
