// Store: one rank's end of a key-value store: a worker, a server, or both. It splits operations into requests for parts, which go to
// the servers as service messages, and serves the requests of others, also while its rank computes. Requests and answers are two
// services, because a server that waits for a worker's credit must not hold up that worker's own server.
//
// Order. The requests of a part leave in the order of the operations, and a push after the answer to the push before. Those of
// different parts leave by priority, the higher first, and then in order. Operations of one key therefore see each other's effects.
//
// Rounds of long values, if all workers push and pull the whole value and no server has an optimizer, are summed by the workers
// themselves: an allreduce moves each byte once or twice, and over servers it passes through the memory of one. A worker asks the
// first server, which decides a round when it knows of all workers (round_choice.h), so workers may call in any order. Such an
// operation has its key to itself: it begins when those before it have ended, and those after it wait. Each part's server gets its
// new value from its own worker, or from a worker that the part's number names, before that worker's operation ends; another
// worker's request that comes earlier says after how many such rounds it is (Reading::after).
//
// A lost server ends calls of the keys that need it (over_without), not only what goes to it: workers hear of it at different times, so
// some have pushed to the other parts of a value, or to what the first server had decided, and others never will.
//
// Replicas. With two of them the next living server in the order has a copy of each part (copies.h). The server applies a push, or a round,
// sends the result with the numbers of the pushes in it to its replica, and answers when that has confirmed it. All answers of a part
// wait for the copies before them, those of pulls too: nobody sees what a death could undo. When a server is lost, its workers give
// what it has not answered to the replica, in the same order and with the same numbers, which it applies unless a copy had them
// already (Part). It does so when it knows of the loss itself: no copy comes after that. The parts of the lost server, and those of
// which it had the copies, are copied anew in the background (server_replicas.cc). A lost worker ends rounds as without replicas.
// The workers sum no rounds themselves, as a group that has lost a member sums nothing. What all ranks do together, as setting an
// updater, is between barriers of those that are left, for the same reason.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/task/lane.h"
#include "base/task/scope.h"
#include "groupcomm/kv/messages.h"
#include "groupcomm/kv/operation.h"
#include "groupcomm/kv/reductions.h"
#include "groupcomm/kv/server.h"
#include "transports/service/services.h"

namespace aiacc::kv {

struct StoreOptions {
  std::string name;  // for messages
  Mode mode = Mode::kSync;
  std::uint64_t staleness = 0;
  std::vector<int> workers, servers;  // ranks of the group, ascending; the first worker's initial values count
  std::uint64_t split_elements = 1'000'000;
  std::size_t allreduce_bytes = 256 << 10;  // shorter values are summed by servers always
  Encoding encoding = Encoding::kPlain;     // of pushed fp32
  float threshold = 0.5;                    // kTwoBit
  UpdaterOptions updater;
  int replicas = 1;                            // or 2, of at least two servers
  TrafficClass traffic = TrafficClass::kBulk;  // of its messages between hosts
};

class Store final : private ServiceHandler, private Root::Owner, private Reductions::Owner {
 public:
  static constexpr ServiceId kRequests = 1, kAnswers = 2;
  static constexpr std::size_t kCredit = 4 << 20;
  static constexpr std::size_t kPartBytes = 512 << 10;

  // On the lane's thread. `services` outlives it. All members make it before the first operation of any.
  Store(Lane& lane, Services& services, ViewPtr view, int rank, StoreOptions options);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // --- the lane's thread -----------------------------------------------------------------------------------------------
  // Ends what is outstanding here with kAborted, and the subscriptions. Nothing is served any more.
  Task<void> close();
  // On workers, before the first operation: the group of all workers, for the rounds that they sum. Outlives close().
  void reduce_in(Group& workers) { reductions_.emplace(workers, static_cast<Reductions::Owner&>(*this)); }
  void set_updater(const UpdaterOptions& updater);
  // Whether the updaters of all servers assign, so that the sum of a round is the value; none if this rank cannot know, so that it sends
  // its gradients, and tells so those that may want to sum them. While nothing is outstanding on any rank.
  void set_all_assign(std::optional<bool> all_assign) noexcept { all_assign_ = all_assign; }
  void set_encoding(Encoding encoding, float threshold) noexcept {
    options_.encoding = encoding;
    options_.threshold = threshold;
  }
  Server& server() noexcept { return server_; }
  // With replicas: says that this rank needs the servers no more, and returns when all others say so or are lost.
  Task<void> leave(Stop& stop);
  // Without replicas, before close() when nobody is waited for, as after a loss: all ranks hear that this one is not coming back, so that
  // their calls that need it end; and that it does so because it has lost rank `lost`, if that is another one, or one that it knows of.
  // Returns when that is on its way.
  Task<void> say_leaving(Stop& stop, int lost = kNoPeer);
  // With replicas, a barrier: returns when all other ranks are here, or are lost. `call` is what the user calls, for messages. Whether
  // a rank that is here says that something is `wrong`; all that return well say the same of it.
  Task<bool> barrier(Stop& stop, std::string_view call, bool wrong);
  // On workers without replicas: once what is outstanding here has ended, servers hear that this rank begins no call any more, so that
  // calls of others that need one end.
  void say_done();
  // How many ranks are lost.
  std::size_t lost_ranks() const noexcept;
  // On servers: puts what saved_state() has of the parts of a server, by index, in the place of these. Returns when the replica has it.
  Task<void> load(Stop& stop, int server, std::string_view bytes);
  // Gets the sentence about the replicas that a loss has cost.
  void report_to(std::function<void(const std::string&)> report) { report_ = std::move(report); }

  // --- any thread ------------------------------------------------------------------------------------------------------
  const StoreOptions& options() const noexcept { return options_; }
  bool is_worker() const noexcept { return worker_ >= 0; }
  std::string describe() const;

 private:
  friend class Operation;
  struct Waiting {  // of a part
    Operation* operation;
    Kind kind;
    std::uint64_t number = 0;  // of a push, from when it is ready
    bool again = false;        // was sent to a server that is lost
  };
  struct PartQueue {
    PartPlace place;
    std::deque<Waiting> waiting;
    bool ready = false;    // its first waiting request is in a server's queue
    bool pushing = false;  // a push is not answered
    std::uint64_t pushes = 0;
    std::vector<float> residual;
    ServiceBytes sent;  // with replicas: the last push of 2-bit elements
  };
  struct Key {
    std::string name;
    Shape shape;
    std::vector<PartQueue> parts;
    bool begun = false;  // kInit has ended well
    Operation* init = nullptr;
    std::deque<Operation*> waiting;  // for kInit to end, or for an operation that has the key to itself
    bool starting = false;           // one of these
    std::size_t requesting = 0;      // operations that have sent requests, and have not ended
    Operation* together = nullptr;   // has the key to itself
    std::uint64_t after = 0;         // rounds that the workers have summed
    std::optional<Error> broken;
  };
  struct Request {
    int priority = 0;
    std::uint64_t sequence = 0;
    Operation* operation = nullptr;
    Key* key = nullptr;
    std::uint32_t part = 0;
    Kind kind{};
    int server = 0;  // whose parts it is about, by index
    int to = 0;      // rank
    std::uint64_t number = 0;
    bool again = false;
  };
  // What a word of a message has in its last bits: an answer to a request, copies between servers, and the end of a rank's use.
  enum class Word : std::uint8_t { kRequest, kAnswer, kCopy, kConfirmation, kLeaving, kBarrier, kDone };
  static constexpr int kWordBits = 3;
  static std::uint64_t word_of(Word word, std::uint64_t number) noexcept {
    return number << kWordBits | static_cast<std::uint64_t>(word);
  }
  struct Post {
    Word word;
    std::uint64_t number;
    ServiceBytes bytes;
  };
  struct Peer {
    explicit Peer(Loop& loop) : requests_news(loop), answers_news(loop), posts_news(loop) {}
    std::map<std::pair<std::int64_t, std::uint64_t>, Request> requests;  // by priority and sequence
    Event requests_news;
    std::optional<Root> requests_pump;
    std::deque<Answer> answers;
    Event answers_news;
    std::optional<Root> answers_pump;
    std::deque<Post> posts;  // of other words
    Event posts_news;
    std::optional<Root> posts_pump;
    bool left = false;
    std::uint64_t at_barrier = 0,
                  wrong = 0;  // numbers of barriers: the last one that it has come to, and the last where it said so
    std::optional<Error> lost;
    // Why nothing comes of it any more: it is lost, or has freed the store and waits for nobody.
    std::optional<Error> gone;
  };

  // ServiceHandler.
  void on_message(ServiceMessage message) noexcept override;
  void on_refused(int to, std::uint64_t word, const Error& why) noexcept override;
  void on_peer_lost(int rank, const Error& why) noexcept override;
  void root_ended(Root& root, std::exception_ptr error) noexcept override;

  // Rounds that the workers sum themselves (store_together.cc).
  bool needs_chooser(const Key& key) const noexcept;
  bool asks_first(const Key& key) const noexcept;
  bool may_be_together(const Order& order, const Key& key) const noexcept;
  int chooser() const noexcept { return options_.servers.front(); }
  void send_to_chooser(Operation* operation, Key& key, Kind kind, int priority);
  void decided(const Request& request, bool together);
  void reduced(Operation& operation, const std::exception_ptr& error) noexcept override;
  void supply(Operation& operation, Key& key);

  // The worker (store_worker.cc).
  void begin(Operation& operation) noexcept;
  void begin_init(Operation& operation);
  const Error* lost_part(const Key& key) const noexcept;
  const Error* over_without(const Key& key) const noexcept;
  void end_hopeless() noexcept;
  void left_early(int rank, std::uint64_t reason) noexcept;
  void serve_without(int rank, const Error& why) noexcept;
  void tell_done();
  void worker_done(int rank) noexcept;
  void start_waiting(Key& key) noexcept;
  void begin_access(Operation& operation, Key& key);
  void check(const Order& order, const Key& key) const;
  void sort_rows(const Key& key, const std::vector<std::uint64_t>& rows, std::vector<Operation::PartRows>& parts) const;
  void enqueue(Operation& operation, Key& key, std::uint32_t part, Kind kind);
  void make_ready(Key& key, std::uint32_t part);
  void post(Request request);
  void send_home(Operation& operation, Key& key, Kind kind);
  ServiceBytes build(const Request& request);
  void answered(std::uint64_t id, std::span<const std::byte> payload) noexcept;
  void take_answer(const Request& request, std::span<const std::byte> elements);
  bool only_counts(const Request& request) const noexcept;
  void ended(const Request& request, std::exception_ptr error) noexcept;
  void init_ended(Operation& operation, Key& key) noexcept;
  void end(Operation& operation) noexcept;
  void late(Operation& operation) noexcept;
  void detach(Operation& operation) noexcept;
  void fail_requests_to(int rank, const Error& why) noexcept;

  // Replicas (store_replicas.cc).
  bool replicated() const noexcept { return options_.replicas > 1; }
  int serving_rank(int server) const noexcept;
  void take_copy(int from, std::uint64_t number, std::span<const std::byte> payload);
  void server_lost(int server, std::vector<Answer>& answers);
  void report_lost(int server);
  void report_replica(const Server::News& news);
  void give_to_replicas(int rank, const Error& why) noexcept;
  void post_to(int rank, Post post);
  static Task<void> send_posts(Store* self, int to);

  // Sending.
  static Task<void> send_requests(Store* self, int to);
  static Task<void> send_answers(Store* self, int to);
  void dispatch(std::vector<Answer>& answers);
  Peer& peer(int rank) noexcept { return peers_[static_cast<std::size_t>(rank)]; }
  const Peer& peer(int rank) const noexcept { return peers_[static_cast<std::size_t>(rank)]; }
  int worker_of(int rank) const noexcept;
  int server_of(int rank) const noexcept;

  Lane& lane_;
  Loop& loop_;
  ServiceMemory& memory_;
  StoreOptions options_;
  int rank_;
  int worker_ = -1;  // this rank's index among the workers
  LayoutRules layout_;
  Server server_;
  std::map<std::string, Key> keys_;
  std::deque<Peer> peers_;
  std::map<std::uint64_t, Request> in_flight_;
  std::list<Operation*> running_;
  std::uint64_t next_ = 0;
  Stop stop_;
  int pumps_ = 0;
  Event ended_;
  Event news_;             // a peer has left, has come to a barrier or is lost, a post is sent, or a copy has arrived
  std::size_t posts_ = 0;  // that are not sent
  std::size_t unsent_answers_ = 0;
  std::uint64_t barriers_ = 0;  // that this rank has come to
  std::function<void(const std::string&)> report_;
  bool closed_ = false;
  bool done_ = false;  // say_done(): the last call of this rank is followed by tell_done()
  std::optional<bool> all_assign_;
  std::optional<Reductions> reductions_;
  std::optional<Service> requests_, answers_;
};

}  // namespace aiacc::kv
