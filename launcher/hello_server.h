// HelloServer: the agent's side of agent_messages.h. Ranks say hello on a local socket; when all of them have (the fence),
// each gets its place and the host's shared memory; afterwards the server tells them at once when one of them is lost.
//
// A rank may run one aiacc program after another (sh -c './a; ./b'): each time all ranks have said hello anew there is a
// new fence with a new segment. At any moment one live process claims a rank.
//
// In a job of several hosts the fence is a part of aiaccrun's: when all ranks of this host have said hello the owner is told,
// and open_world() or refuse_world() is the answer. Losses on other hosts come in by lose_remote().
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
#include "launcher/failure.h"
#include "launcher/frames.h"

namespace aiacc::launcher {

// The host's shared memory for one fence.
struct SharedSegment {
  std::shared_ptr<const Fd> descriptor;
  std::uint64_t nonce = 0;  // stands in its first page
};

class HelloServer {
 public:
  class Owner {
   public:
    virtual void rank_connected(int local) = 0;
    virtual void rank_initialised(int local) = 0;
    virtual void rank_finalized(int local) = 0;
    // A process was turned away, or none can be taken for now; told once for each cause that a user should hear of.
    virtual void hello_refused(MessageId id, const std::string& sentence) = 0;
    // Memory for this host's ranks; throws kOutOfMemory with the numbers.
    virtual SharedSegment make_segment() = 0;
    // Of several hosts: all ranks of this one wait for the others', and where they take connections.
    virtual void host_ready(const std::string& library_version, std::vector<std::uint16_t> data_ports) = 0;
    // Of several hosts: a rank of this one is gone without leaving, after a hello.
    virtual void rank_lost(int rank, const std::string& sentence) = 0;

   protected:
    ~Owner() = default;
  };

  struct Config {
    std::string host_name;
    std::uint32_t user = 0;   // the only one who may call
    io::ProcessId agent = 0;  // adopts orphans of ranks
    std::uint64_t job = 0;
    std::vector<std::uint32_t> hosts_of_ranks;  // of the whole job
    std::vector<std::int32_t> ranks;            // of this host, ascending; a rank's index here is its `local`
    wire::HiddenText secret;                    // of the job
    bool several_hosts = false;
  };

  HelloServer(Loop& loop, io::Host& host, Config config, Owner& owner);
  HelloServer(const HelloServer&) = delete;
  HelloServer& operator=(const HelloServer&) = delete;

  // Accepts and answers until stopped.
  Task<void> serve(std::unique_ptr<io::Listener> listener, Stop& stop);

  // In the order of local ranks, before serve().
  void set_processes(std::vector<io::ProcessId> processes) { processes_ = std::move(processes); }
  // The rank's process ended; `what` is "exited with status 3", "was killed by signal 9 (Killed)" …
  void rank_exited(int local, const std::string& what);

  // Waits until what a rank, whose process has ended, said before is heard: a moment, or a little longer if some child of it
  // has its connection. Then comes rank_exited().
  Task<void> hear_out(int local, Stop& stop);
  // The rank of the job that this one said to have lost; -1: none.
  int lost_peer_of(int local) const { return lost_peers_[static_cast<std::size_t>(local)]; }

  // aiaccrun's answers to Owner::host_ready().
  void open_world(const wire::OpenWorld& world);
  void refuse_world(Code code, const std::string& sentence);
  // Processes of other users that called here, and whom ranks of this host turned away, as they said when they left, or lost a
  // peer.
  std::uint64_t strangers() const noexcept { return strangers_; }
  // To all that wait for the others: who is missing.
  void tell_missing(const std::string& sentence);
  // A rank of another host is gone without leaving.
  void lose_remote(int rank, const std::string& sentence);

 private:
  struct Session {
    enum class State : std::uint8_t { kNew, kWaiting, kWelcomed, kLeft };
    Session(Loop& loop, std::unique_ptr<io::Stream> with) : stream(std::move(with)), sender(loop, *stream) {}
    std::unique_ptr<io::Stream> stream;
    FrameSender sender;
    State state = State::kNew;
    bool heard_out = false;  // its end of stream has come
    int local = -1;
    io::ProcessId process = 0;
    std::string version;
    std::uint16_t data_port = 0;
    std::uint64_t strangers = 0;  // as it said last
  };
  struct Refusal {
    Code code;
    std::string sentence;
    std::optional<MessageId> tell_user{};  // what every rank will say itself needs no line of aiaccrun
    int lost = -1;                         // the rank whose loss is the reason
  };

  static Task<void> turn_away(HelloServer* self, std::unique_ptr<io::Stream> from, Stop& stop);
  static Task<void> session(HelloServer* self, std::unique_ptr<io::Stream> stream, Stop& stop);
  Task<void> converse(Session& session, Stop& stop);
  std::optional<Refusal> check(Session& session, const wire::Hello& hello);
  std::optional<Refusal> check_claim(Session& session);
  void refuse(Session& session, const Refusal& refusal);
  void refuse_waiting(const Refusal& refusal);
  void tell_user(MessageId id, const std::string& sentence);
  void take(Session& session, const wire::Frame& frame);
  void count_strangers(Session& session, std::uint64_t so_far);
  void complete_fence();
  std::vector<Session*> waiting();
  void welcome(const std::vector<Session*>& sessions, const wire::OpenWorld& world);
  void ended(Session& session);
  void tell_lost(int rank, const std::string& sentence);
  void lose_local(int local, const std::string& sentence);
  int rank_of(int local) const { return config_.ranks[static_cast<std::size_t>(local)]; }
  int size() const { return static_cast<int>(config_.hosts_of_ranks.size()); }
  Session* claim_of(int local) noexcept;

  Loop& loop_;
  io::Host& host_;
  Config config_;
  Owner& owner_;
  std::vector<io::ProcessId> processes_;
  std::list<Session*> sessions_;     // in the order of their coming; they live in their coroutines
  Event heard_;                      // set when a session has been heard out
  std::vector<int> lost_peers_;      // by local rank
  std::string last_told_;            // of the refusals, to the user
  std::optional<Refusal> no_fence_;  // why no fence can complete any more
  std::uint64_t strangers_ = 0;
  std::size_t foreigners_ = 0;  // processes of other users that are being turned away
  bool announced_ = false;      // all wait for the other hosts
};

}  // namespace aiacc::launcher
