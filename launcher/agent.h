// Agent: starts the ranks of one host, binds them, passes their output and their ends to aiaccrun, serves their hellos, and
// ends every descendant when the job, aiaccrun or the keeper ends, or when the channel to aiaccrun falls silent. Logic over Loop, Net and Host; what only a real host has
// comes in as AgentPlatform.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/io/clock.h"
#include "base/io/host.h"
#include "base/io/net.h"
#include "base/task/scope.h"
#include "base/wire/launch_messages.h"
#include "launcher/environment.h"
#include "launcher/exit_rules.h"
#include "launcher/hello_server.h"
#include "launcher/input_feed.h"
#include "launcher/lease.h"
#include "launcher/memory_kills.h"
#include "launcher/output_pump.h"
#include "launcher/placement.h"
#include "launcher/presence.h"

namespace aiacc::launcher {

class AgentPlatform {
 public:
  virtual ~AgentPlatform() = default;
  virtual io::Entropy& entropy() = 0;
  virtual std::uint32_t user() = 0;
  virtual io::ProcessId process() = 0;
  // A TCP port of this host that stays bound, and never listens, while the platform lives: MASTER_PORT, where torch's
  // store of rank 0 listens (SO_REUSEADDR lets it).
  virtual std::uint16_t hold_port() = 0;
  // Throws kOutOfMemory with both numbers, before any page is touched, if this host has no room for so many ranks.
  // `slice_bytes` 0: address space for each rank as much as the host has memory.
  virtual SharedSegment make_segment(int ranks, std::uint64_t slice_bytes) = 0;
  // Of this host: loaded by its agent, once, and by no rank.
  virtual const Topology& topology() = 0;
  virtual std::vector<std::string> environment() = 0;  // the agent's own
  virtual std::vector<std::string> addresses() = 0;    // for other hosts, the likeliest first
  virtual std::string machine() = 0;                   // base/io/machine_mark.h
};

class Agent final : private HelloServer::Owner {
 public:
  // `from_head` and `to_head` are the control channel; `keeper` is read to its end, which comes when the keeper dies.
  Agent(Loop& loop, io::Net& net, io::Host& host, AgentPlatform& platform, io::Stream& from_head, io::Stream& to_head,
        io::Stream& keeper);

  // Returns when nothing that it started lives any more.
  Task<void> run(Stop& stop);

 private:
  static constexpr Duration kKillLimit = std::chrono::seconds(10);  // of a process that the kernel does not let go

  struct Rank {
    int rank = 0;
    std::unique_ptr<io::Process> process;
    bool exited = false;
  };
  struct KillTimer final : Timer {
    explicit KillTimer(Agent& agent) : owner(agent) {}
    void expired() noexcept override { owner.kill_now_.set(); }
    Agent& owner;
  };

  // What all ranks of the host have in common when they start.
  struct Common {
    Environment environment;
    Wiring wiring;
    Placement placement;
    std::uint64_t slice_bytes = 0;  // AIACC_SLICE_BYTES where the ranks' environment has it
  };

  void greet(const wire::Greeting& greeting);
  void prepare(wire::StartJob job);
  void start_ranks();
  void make_ready();
  void spawn_ranks();
  template <typename Step>
  bool try_to(Step step);
  Wiring serve_hellos();
  void spawn_rank(std::size_t local);
  void report_started();
  void not_started(int exit_code, MessageId id, const std::string& sentence);
  Task<void> live(Scope& scope);
  Task<void> beat(Stop& stop);
  HelloServer& fence();
  InputFeed& input();
  Task<void> control(Stop& stop);
  void handle(const wire::Frame& frame);
  Task<void> watch_keeper(Stop& stop);
  Task<void> watch_exit(int local, Stop& stop);
  Task<void> watch_stops(int local, Stop& stop);
  Task<void> answer_asks(Stop& stop);
  Task<void> look_for_others(Stop& stop);
  Task<void> pump(OutputPump* pump, Stop& stop);
  Task<void> killer(Stop& stop);
  Task<void> finish(Stop& stop);
  Task<void> drain(Stop& stop);

  void signal_ranks(int number);
  void end_ranks(const wire::EndRanks& order);
  void lost();
  void head_lost();

  void rank_connected(int local) override { report_phase(local, RankPhase::kConnected); }
  void rank_initialised(int local) override { report_phase(local, RankPhase::kInitialised); }
  void rank_finalized(int local) override { report_phase(local, RankPhase::kFinalized); }
  void hello_refused(MessageId id, const std::string& sentence) override { notify(id, sentence); }
  SharedSegment make_segment() override;
  void host_ready(const std::string& library_version, std::vector<std::uint16_t> data_ports) override;
  void rank_lost(int rank, const std::string& sentence) override;
  void report_phase(int local, RankPhase phase);
  void notify(MessageId id, const std::string& sentence);

  Loop& loop_;
  io::Net& net_;
  io::Host& host_;
  AgentPlatform& platform_;
  FrameReader from_head_;
  io::Stream& keeper_;
  FrameSender to_head_;
  MemoryKills memory_kills_;
  CreditGate gates_[2];
  wire::StartJob job_;
  std::optional<Common> common_;  // once the host is prepared
  std::vector<Rank> ranks_;
  std::list<OutputPump> pumps_;
  std::optional<InputFeed> input_;              // where the rank that reads it is of this host
  std::optional<SharedSegment> first_segment_;  // made before anything starts, so that no room is known then
  std::unique_ptr<HelloServer> hellos_;
  std::unique_ptr<io::Listener> listener_;
  std::optional<Presence> presence_;
  std::optional<wire::LookFor> others_;  // that aiaccrun asks for
  std::optional<Lease> lease_;
  KillTimer kill_timer_{*this};
  Instant kill_at_ = kNever;
  Instant started_{};
  Event decided_;  // the ranks run, or there will be none
  Event kill_now_;
  Event asked_;  // what ended here
  Event others_asked_;
  Event all_exited_;
  Event pumps_done_;
  std::size_t running_ = 0;
  std::size_t pumping_ = 0;
  std::uint64_t dropped_ = 0;
  bool ranks_run_ = false;
  bool head_gone_ = false;
  bool ending_ = false;  // ended by order, not by the ranks
  bool stopped_by_user_ = false;
  bool said_unbound_ = false;  // once a host
};

}  // namespace aiacc::launcher
