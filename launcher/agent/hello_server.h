// HelloServer: the agent's side of agent_messages.h. Ranks say hello on a local socket; when all of them have (the start
// barrier), each gets its local rank and the host's shared memory; afterwards the server tells them at once when one of them is
// lost.
//
// A rank may run one aiacc program after another (sh -c './a; ./b'): each time all ranks have said hello anew there is
// a new start barrier with a new segment. At most one live process claims a rank at any time.
//
// In a job over several hosts, aiaccrun holds the start barrier: when all ranks of this host have said hello, the owner
// is notified, and it answers with open_world() or refuse_world(). lose_remote() reports losses on other hosts.
//
// In an elastic job aiaccrun holds the start barrier on one host too. A lost rank refuses nobody there: the others leave
// their world and say hello, and the next world opens when those have whom aiaccrun counts in (replace(), leave_out()).
// Between this server and aiaccrun a rank is the number under which it was started; what ranks say and hear is its number
// in their world.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/io/host.h"
#include "base/io/net.h"
#include "base/task/scope.h"
#include "base/wire/agent_messages.h"
#include "base/wire/launch_messages.h"
#include "launcher/channel/frames.h"
#include "launcher/cli/failure.h"

namespace aiacc::launcher {

// How long the pidfd of a dead rank may lag behind the end of its connections, after which its peers may fail. The kernel needs
// microseconds, or milliseconds on an overloaded machine. It is a tenth of the second within which peers must learn of the
// rank's end.
inline constexpr Duration kExitNotificationDelay = std::chrono::milliseconds(100);

// The host's shared memory, created for one start barrier.
struct SharedSegment {
  std::shared_ptr<const Fd> descriptor;
  std::uint64_t nonce = 0;  // stored in its first page
};

class HelloServer {
 public:
  class Owner {
   public:
    virtual void rank_connected(int local) = 0;
    virtual void rank_initialised(int local) = 0;
    virtual void rank_finalized(int local) = 0;
    // A process was refused, or none can be accepted for now; called once for each cause that the user should see.
    virtual void hello_refused(MessageId id, const std::string& sentence) = 0;
    // Memory for so many ranks of this host; throws kOutOfMemory with the numbers.
    virtual SharedSegment make_segment(int ranks) = 0;
    // Several hosts only: all ranks of this host wait for those of the others; `ports` is where each of them is reached.
    // `number` counts these calls, from 1.
    virtual void host_ready(const std::string& library_version, std::vector<wire::RankPorts> ports,
                            std::uint32_t number) = 0;
    // Several hosts only: a rank of this host that had said hello ended without leaving in order.
    virtual void rank_lost(int rank, const std::string& sentence) = 0;

   protected:
    ~Owner() = default;
  };

  struct Config {
    std::string host_name;
    std::uint32_t user = 0;   // the only user that may connect
    io::ProcessId agent = 0;  // the parent of orphaned descendants of ranks
    std::uint64_t job = 0;
    std::vector<std::uint32_t> hosts_of_ranks;  // of the whole job
    std::vector<std::int32_t> ranks;            // of this host, ascending; a rank's index here is its `local`
    wire::HiddenText secret;                    // of the job
    bool several_hosts = false;
    bool elastic = false;
  };

  HelloServer(Loop& loop, io::Host& host, Config config, Owner& owner);
  HelloServer(const HelloServer&) = delete;
  HelloServer& operator=(const HelloServer&) = delete;

  // Accepts and answers until stopped.
  Task<void> serve(std::unique_ptr<io::Listener> listener, Stop& stop);

  // Indexed by local rank; call before serve().
  void set_processes(std::vector<io::ProcessId> processes) { processes_ = std::move(processes); }
  // The rank's process ended; `what` is "exited with status 3", "was killed by signal 9 (Killed)" …
  void rank_exited(int local, const std::string& what);

  // For a rank whose process has ended: waits until its last messages have been read, which takes a moment, or slightly
  // longer if a child process holds its connection. Call rank_exited() afterwards.
  Task<void> drain_session(int local, Stop& stop);
  // The rank of the job that this one reported as lost; -1: none.
  int lost_peer_of(int local) const { return lost_peers_[static_cast<std::size_t>(local)]; }
  // Its report of a broken network; "": none.
  const std::string& lost_path_of(int local) const { return lost_paths_[static_cast<std::size_t>(local)]; }

  // Elastic jobs only, after rank_exited(): this process has its place now, or nobody has.
  void replace(int local, io::ProcessId process);
  void leave_out(int local);
  // A further rank of this host, not awaited before it has said hello.
  void add(int rank, io::ProcessId process);
  // Tells the ranks that are in a world.
  void update_hosts(std::uint8_t what);
  // The rank lives, and no further world has it: its next hello is refused with this sentence.
  void dismiss(int local, const std::string& sentence);

  // aiaccrun's answers to Owner::host_ready().
  void open_world(const wire::OpenWorld& world);
  void refuse_world(Code code, const std::string& sentence);
  // Number of unauthenticated peers: processes of other users that connected here, and connections that ranks of this
  // host refused, as they reported when they left or lost a peer.
  std::uint64_t unauthenticated() const noexcept { return unauthenticated_; }
  // Tells all ranks that wait for others which ranks are missing.
  void send_missing(const std::string& sentence);
  // A rank of another host ended without leaving in order.
  void lose_remote(int rank, const std::string& sentence);

 private:
  struct Session {
    enum class State : std::uint8_t { kNew, kWaiting, kWelcomed, kLeft };
    Session(Loop& loop, std::unique_ptr<io::Stream> with) : stream(std::move(with)), sender(loop, *stream) {}
    std::unique_ptr<io::Stream> stream;
    FrameSender sender;
    State state = State::kNew;
    bool drained = false;  // its end of stream was read
    int local = -1;
    io::ProcessId process = 0;
    std::string version;
    wire::RankPorts ports;
    std::uint64_t unauthenticated = 0;  // as it said last
  };
  struct Refusal {
    Code code;
    std::string sentence;
    std::optional<MessageId> tell_user{};  // unset if every rank reports it anyway
    int lost = -1;                         // the lost rank that is the reason
  };

  static Task<void> refuse_foreign_user(HelloServer* self, std::unique_ptr<io::Stream> from, Stop& stop);
  static Task<void> session(HelloServer* self, std::unique_ptr<io::Stream> stream, Stop& stop);
  Task<void> serve_messages(Session& session, Stop& stop);
  std::optional<Refusal> check(Session& session, const wire::Hello& hello);
  std::optional<Refusal> check_claim(Session& session);
  void refuse(Session& session, const Refusal& refusal);
  void refuse_waiting(const Refusal& refusal);
  void report_to_user(MessageId id, const std::string& sentence);
  void handle_frame(Session& session, const wire::Frame& frame);
  void count_unauthenticated(Session& session, std::uint64_t so_far);
  void complete_start_barrier();
  std::vector<Session*> waiting();
  void welcome(const std::vector<Session*>& sessions, const wire::OpenWorld& world);
  void session_ended(Session& session);
  void send_lost(int rank, const std::string& sentence);
  void lose_local(int local, const std::string& sentence);
  void open_elastic_world(const wire::OpenWorld& world);
  int number_in_world(int rank) const noexcept;
  int rank_of(int local) const { return config_.ranks[static_cast<std::size_t>(local)]; }
  bool aiaccrun_holds_barrier() const { return config_.several_hosts || config_.elastic; }
  int size() const { return static_cast<int>(config_.hosts_of_ranks.size()); }
  Session* claim_of(int local) noexcept;

  Loop& loop_;
  io::Host& host_;
  Config config_;
  Owner& owner_;
  std::vector<io::ProcessId> processes_;
  std::list<Session*> sessions_;  // in order of arrival; owned by their coroutines
  Event session_drained_;         // set when a session's end of stream was read
  std::vector<int> lost_peers_;   // by local rank
  std::vector<std::string> lost_paths_;
  std::string last_reported_;             // the last refusal that was reported to the user
  std::optional<Refusal> start_refusal_;  // why no further start barrier can complete
  std::uint64_t unauthenticated_ = 0;
  std::size_t foreign_connections_ = 0;  // processes of other users that are being refused
  bool reported_ready_ = false;          // all ranks wait for the other hosts
  std::uint32_t reports_ = 0;            // calls of Owner::host_ready()
  std::vector<bool> left_out_;           // by local rank
  std::vector<bool> arriving_;           // by local rank: added, and has not said hello
  std::vector<std::string> dismissed_;   // by local rank: why; "" if it was not
  std::vector<std::int32_t> world_;      // elastic: the ranks of the last world, by their numbers in it
};

}  // namespace aiacc::launcher
