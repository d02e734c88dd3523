// Server: all parts of values that one server has, and the shapes of the keys whose home it is. Pure: a request in, answers out.
//
// A key begins with kDeclare of all workers to its home, and with the first value, of the first worker only: kCreate of each part
// to its server, and, when all are there, kDefine to the home, which then answers the declarations. Whoever declares another
// shape than the first worker's is told so.
//
// With replicas a server also has a copy of each part of the server before it, and, when that is lost, goes on with them. Requests of
// workers who know of the loss earlier wait until it knows too, because copies may still come before (store.h). What a server has to
// copy anew after a loss goes in the background, some parts at a time (server_replicas.cc).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "groupcomm/kv/copies.h"
#include "groupcomm/kv/messages.h"
#include "groupcomm/kv/part.h"
#include "groupcomm/kv/round_choice.h"

namespace aiacc::kv {

class Server {
 public:
  // `index` is its place among all servers.
  struct Place {
    int index = 0, servers = 1;
    bool replicas = false;
    std::vector<int> ranks;  // of the servers
  };
  // `ranks[w]` is the rank of worker w, for messages; `rank` is the server's own. `memory` outlives it.
  Server(const Rules& rules, std::vector<int> ranks, int rank, Place place, ServiceMemory& memory);

  // Never throws for what the request says: that is an answer.
  void request(int worker, std::uint64_t id, ServiceBytes payload, std::vector<Answer>& answers);
  // The sum of a round of a part, which the workers have summed themselves.
  void supply(std::string_view key, std::uint32_t part, std::span<const std::byte> sum, std::vector<Answer>& answers);
  void lost(int worker, const Error& why, std::vector<Answer>& answers);
  // The worker, which lives, begins no call any more, and has no answer outstanding.
  void done(int worker, const Error& why, std::vector<Answer>& answers);
  // A server, by index, from which nothing comes any more.
  void server_lost(int server, std::vector<Answer>& answers);
  // Workers that would sum a round send it from now on: a server is lost, and some of them do not come any more.
  void let_all_send(std::vector<Answer>& answers);
  // Whether requests for that server's parts, by index, are for this one.
  bool serves(int server) const noexcept;
  // The server, by index, to which the copies go; -1: none.
  int replica() const noexcept { return replica_; }
  bool copies_anew() const noexcept { return !to_copy_.empty() || !copying_.empty(); }
  // The servers, by index, whose parts this one serves: its own, and those of lost ones.
  std::vector<int> served() const;
  // Throws kPeerFailed if values of that server, which this one serves, were lost with it.
  void check_whole(int server) const;
  // The parts of a server that this one serves are other ones now: the replica gets them while copies_anew().
  void replaced(int server);
  // What has become of replicas since the last call.
  struct News {
    bool lost =
        false;  // values of `server` were lost with it, which this server goes on for. Else `server` has all that this one has
    int server = 0;
  };
  std::vector<News> take_news() noexcept { return std::exchange(news_, {}); }
  // Copies for the replica since the last call, and what it has of them; the other way round, a copy that this server gets.
  std::vector<Copies::Numbered> take_copies() noexcept { return copies_.take(); }
  void confirmed(std::uint64_t number, std::vector<Answer>& answers);
  void take_over(std::span<const std::byte> copy);
  void set_updater(const UpdaterOptions& updater);
  const UpdaterOptions& updater() const noexcept { return updater_; }

  struct Saved {
    std::string key;
    std::uint32_t part;
    Part* state;
  };
  // In the order of keys and parts: all that this server has, or those of one server, by index.
  std::vector<Saved> parts(std::optional<int> of = std::nullopt);

 private:
  struct Declared {
    int worker;
    std::uint64_t id;
    Shape shape;
  };
  struct Kept {
    std::unique_ptr<Part> part;
    int server = 0;          // whose it is
    std::uint64_t copy = 0;  // the last one
    bool copied = false;     // the replica has it, or gets it before what changes from now on
  };
  struct Key {
    std::optional<Shape> shape;  // defined here: this server is its home
    std::vector<Declared> waiting;
    std::map<std::uint32_t, Kept> parts;
    std::optional<RoundChoice> choice;  // of the first server, for keys that the workers have asked it about
  };

  struct Early {
    int worker;
    std::uint64_t id;
    int server;
    ServiceBytes payload;
  };
  bool is_early(int server) const noexcept { return place_.replicas && !serves(server); }
  bool copies(int server) const noexcept { return copies_.on() && serves(server); }
  int before(int server) const noexcept { return (server + place_.servers - 1) % place_.servers; }
  int next_living() const noexcept;
  void forget_states();
  void copy_anew(int server);
  void copy_some();
  void serve_early(std::vector<Answer>& answers);
  void settle(std::string_view key, std::uint32_t number, Kept& kept, std::vector<Answer> fresh,
              std::vector<Answer>& answers);
  const Error* no_first_worker() const noexcept;
  using PartIsTold = void (Part::*)(int worker, const Error& why, std::vector<Answer>& answers);
  void pushes_no_more(int worker, const Error& why, PartIsTold told, std::vector<Answer>& answers);
  void serve(int worker, std::uint64_t id, ServiceBytes& payload, std::vector<Answer>& answers);
  void declare(int worker, std::uint64_t id, const RequestView& request, std::vector<Answer>& answers);
  void create(int worker, std::uint64_t id, const RequestView& request, std::vector<Answer>& answers);
  void define(int worker, std::uint64_t id, const RequestView& request, std::vector<Answer>& answers);
  RoundChoice& choice_of(std::string_view key);
  Error lost_with(std::string_view key) const;
  Kept& kept_of(std::string_view key, std::uint32_t part);
  Gradient gradient_of(const RequestView& request, const Part& part, ServiceBytes& payload) const;
  void check_rows(const RequestView& request, const std::vector<std::uint64_t>& rows, const Part& part) const;
  std::optional<Error> differs(std::string_view key, const Shape& defined, const Declared& declared) const;

  Rules rules_;
  std::vector<int> ranks_;
  int rank_;
  Place place_;
  ServiceMemory& memory_;
  Copies copies_;
  std::set<int> lost_servers_;
  int first_;                   // of the servers whose parts this one serves, up to its own
  int replica_ = -1;            // where its copies go
  std::vector<bool> complete_;  // whether this one has all of that server's
  struct ToCopy {
    int server;
    CopyOf what;
    std::string key;
    std::uint32_t part;
  };
  std::deque<ToCopy> to_copy_;
  std::deque<std::pair<std::uint64_t, std::size_t>> copying_;  // of these: number and bytes of what is not confirmed
  std::size_t copying_bytes_ = 0;
  bool after_loss_ = false;  // what is copied anew is so because of a loss, and its end is news
  std::vector<News> news_;
  std::vector<Early> early_;
  UpdaterOptions updater_;
  std::unordered_map<std::string, Key> keys_;
  std::map<int, Error> lost_, done_;  // workers
  bool all_send_ = false;
};

}  // namespace aiacc::kv
