// launcher/agent: the processes on each host: keeper, agent, the ranks' processes, their hellos and exits. Not here:
// decisions about the job as a whole (launcher/head); an agent executes orders and reports.
//
// Agent: starts and binds the ranks of one host, forwards their output and exit statuses to aiaccrun, answers their
// hellos, and kills all descendants when the job, aiaccrun or the keeper ends, or when the channel to aiaccrun is
// silent for too long. Its logic uses Loop, Net and Host only; AgentPlatform provides what only a real host has.
#pragma once

#include <cstdint>
#include <deque>
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
#include "launcher/agent/exit_rules.h"
#include "launcher/agent/hello_server.h"
#include "launcher/agent/memory_kills.h"
#include "launcher/agent/same_host_socket.h"
#include "launcher/channel/lease.h"
#include "launcher/plan/environment.h"
#include "launcher/plan/placement.h"
#include "launcher/stdio/input_feed.h"
#include "launcher/stdio/output_pump.h"

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
  // `slice_bytes` 0: each rank gets as much address space as the host has memory.
  virtual SharedSegment make_segment(int ranks, std::uint64_t slice_bytes) = 0;
  // The topology of this host; the agent loads it once, ranks never do.
  virtual const Topology& topology() = 0;
  virtual std::vector<std::string> environment() = 0;  // the agent's own
  virtual std::vector<std::string> addresses() = 0;    // for other hosts, the most likely to be reachable first
  virtual std::string machine() = 0;                   // base/io/machine_mark.h
  virtual std::string program() = 0;                   // its own file
};

class Agent final : private HelloServer::Owner {
 public:
  // `from_head` and `to_head` are the control channel; `keeper` is read to its end, which comes when the keeper dies.
  Agent(Loop& loop, io::Net& net, io::Host& host, AgentPlatform& platform, io::Stream& from_head, io::Stream& to_head,
        io::Stream& keeper);

  // Returns when all processes that it started have ended.
  Task<void> run(Stop& stop);

 private:
  static constexpr Duration kKillLimit = std::chrono::seconds(10);  // for a process that the kernel does not end

  struct Rank {
    int rank = 0;
    std::unique_ptr<io::Process> process;
    bool exited = false;
    bool unsettled = false;  // elastic: aiaccrun has not answered its exit
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
  std::unique_ptr<io::Process> spawn_rank(std::size_t local, bool reads_input);
  void settle(const wire::SettleRank& order);
  Task<void> respawn(std::size_t local, Stop& stop);
  void add_ranks(const wire::AddRanks& order);
  void add_rank(const wire::StartRank& planned);
  void live_with(std::size_t local);
  void run_pumps(std::size_t first);
  void dismiss(const wire::DismissRank& order);
  Task<void> kill_after_grace(std::size_t local, Stop& stop);
  std::size_t place_of(int rank) const;
  void report_exit_of_unstarted(int rank);
  void pump_output(Rank& rank);
  void count_exit();
  void report_started(std::size_t first);
  void not_started(int exit_code, MessageId id, const std::string& sentence);
  Task<void> live(Scope& scope);
  Task<void> beat(Stop& stop);
  HelloServer& start_barrier();
  InputFeed& input();
  Task<void> control(Stop& stop);
  void handle(const wire::Frame& frame);
  Task<void> watch_keeper(Stop& stop);
  Task<void> watch_exit(int local, Stop& stop);
  Task<void> watch_stops(int local, Stop& stop);
  Task<void> answer_exit_queries(Stop& stop);
  Task<void> find_same_host(Stop& stop);
  Task<void> pump(OutputPump* pump, Stop& stop);
  Task<void> killer(Stop& stop);
  Task<void> finish(Stop& stop);
  Task<void> drain(Stop& stop);
  Task<void> delivered(Stop& stop);

  void signal_ranks(int number);
  void end_ranks(const wire::EndRanks& order);
  void lost();
  void head_lost();

  void rank_connected(int local) override { report_phase(local, RankPhase::kConnected); }
  void rank_initialised(int local) override { report_phase(local, RankPhase::kInitialised); }
  void rank_finalized(int local) override { report_phase(local, RankPhase::kFinalized); }
  void hello_refused(MessageId id, const std::string& sentence) override { notify(id, sentence); }
  SharedSegment make_segment(int ranks) override;
  void host_ready(const std::string& library_version, std::vector<wire::RankPorts> ports,
                  std::uint32_t number) override;
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
  std::optional<Common> common_;                        // once the host is prepared
  std::deque<Rank> ranks_;                              // coroutines refer to them while more are added
  std::vector<std::unique_ptr<io::Process>> replaced_;  // coroutines may still refer to them
  Scope* living_ = nullptr;                             // what runs while ranks do; set while it takes more
  std::list<OutputPump> pumps_;
  std::optional<InputFeed> input_;  // if the rank that reads it is on this host
  // Created before any rank starts, so that a lack of memory is reported early.
  std::optional<SharedSegment> first_segment_;
  std::unique_ptr<HelloServer> hellos_;
  std::unique_ptr<io::Listener> listener_;
  std::optional<SameHostSocket> same_host_socket_;
  std::optional<wire::FindSameHost> same_host_query_;  // as requested by aiaccrun
  std::optional<Lease> lease_;
  KillTimer kill_timer_{*this};
  Instant kill_at_ = kNever;
  Instant started_{};
  Event decided_;  // set when the ranks run, or will not be started
  Event kill_now_;
  Event exits_queried_;  // aiaccrun has asked which ranks exited here
  Event same_host_asked_;
  Event all_exited_;
  Event pumps_done_;
  Event head_closed_;  // aiaccrun sends nothing more, because it has all it needs or is gone
  std::size_t running_ = 0;
  std::size_t pumping_ = 0;
  std::uint64_t dropped_ = 0;
  bool ranks_run_ = false;
  bool head_gone_ = false;
  bool ending_ = false;  // the job ends by order, not because the ranks ended
  bool stopped_by_user_ = false;
  bool said_unbound_ = false;  // reported once for each host
};

}  // namespace aiacc::launcher
