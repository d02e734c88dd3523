// A store with replicas: copies between servers, and what goes on when one is lost.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "groupcomm/kv/saved.h"
#include "groupcomm/kv/store.h"

namespace aiacc::kv {

// Who serves a server's parts: itself, or the next living one in the order. Its own rank if there is none.
int Store::serving_rank(int server) const noexcept {
  for (int step = 0; replicated() && step < layout_.servers; ++step) {
    const int rank = options_.servers[static_cast<std::size_t>((server + step) % layout_.servers)];
    if (!peer(rank).lost) return rank;
  }
  return options_.servers[static_cast<std::size_t>(server)];
}

void Store::take_copy(int from, std::uint64_t number, std::span<const std::byte> payload) {
  try {
    server_.take_over(payload);
  } catch (const Error&) {
    return;  // of no server of this protocol, which waits for the confirmation until its workers' deadlines
  }
  post_to(from, {Word::kConfirmation, number, {}});
}

void Store::server_lost(int server, std::vector<Answer>& answers) {
  server_.server_lost(server, answers);
  const auto first =
      std::find_if(options_.servers.begin(), options_.servers.end(), [this](int rank) { return !peer(rank).lost; });
  if (first != options_.servers.end() && *first == rank_ && report_) report_lost(server);
}

void Store::report_lost(int server) {
  const int next = serving_rank(server);
  int before = server;
  do {
    before = (before + layout_.servers - 1) % layout_.servers;
  } while (peer(options_.servers[static_cast<std::size_t>(before)]).lost);
  const int other = options_.servers[static_cast<std::size_t>(before)];
  report_(fmt::format("{} goes on without rank {}: rank {} serves its values, which have one replica now{}", describe(),
                      options_.servers[static_cast<std::size_t>(server)], next,
                      other == next ? "" : fmt::format(", as have those of rank {}", other)));
}

void Store::report_replica(const Server::News& news) {
  if (!report_) return;
  const int rank = options_.servers[static_cast<std::size_t>(news.server)];
  report_(news.lost ? fmt::format("{} has lost values of rank {}: rank {} goes on with what it had of them", describe(),
                                  rank, rank_)
                    : fmt::format("{} has two replicas again of what rank {} serves: the other one is on rank {}",
                                  describe(), rank_, rank));
}

// Of the requests to a lost rank those whose parts have a replica begin again, in their order. The others fail.
void Store::give_to_replicas(int rank, const Error& why) noexcept {
  const auto moves = [&](const Request& request) {
    const int now = serving_rank(request.server);
    return now != rank && !peer(now).lost && request.operation != nullptr;
  };
  std::vector<Request> again, failed;
  for (auto request = in_flight_.begin(); request != in_flight_.end();) {
    if (request->second.to != rank) {
      ++request;
      continue;
    }
    request->second.again = true;
    (moves(request->second) ? again : failed).push_back(request->second);
    request = in_flight_.erase(request);
  }
  // Of a part at most one waits to be sent, and it comes after those that were. Where it cannot move, its sending fails.
  for (auto request = peer(rank).requests.begin(); request != peer(rank).requests.end();) {
    if (!moves(request->second)) {
      ++request;
      continue;
    }
    if (in_queue_of_part(request->second.kind)) request->second.key->parts[request->second.part].ready = false;
    again.push_back(request->second);
    request = peer(rank).requests.erase(request);
  }
  for (auto request = again.rbegin(); request != again.rend(); ++request) {
    if (!in_queue_of_part(request->kind)) continue;
    PartQueue& queue = request->key->parts[request->part];
    queue.waiting.push_front({request->operation, request->kind, request->number, request->again});
    if (request->kind == Kind::kPush) queue.pushing = false;
  }
  for (const Request& request : again) {
    in_queue_of_part(request.kind) ? make_ready(*request.key, request.part)
                                   : send_home(*request.operation, *request.key, request.kind);
  }
  const std::exception_ptr error = std::make_exception_ptr(why);
  for (const Request& request : failed) ended(request, error);
}

void Store::post_to(int rank, Post post) {
  Peer& its = peer(rank);
  if (its.lost || closed_) return;
  its.posts.push_back(std::move(post));
  ++posts_;
  its.posts_news.set();
  if (its.posts_pump) return;
  ++pumps_;
  its.posts_pump.emplace(loop_, send_posts(this, rank), static_cast<Root::Owner&>(*this));
  its.posts_pump->start();
}

Task<void> Store::send_posts(Store* self, int to) {
  Peer& its = self->peer(to);
  while (true) {
    while (its.posts.empty()) {
      its.posts_news.reset();
      co_await its.posts_news.wait(self->stop_);
    }
    Post post = std::move(its.posts.front());
    its.posts.pop_front();
    Service& service = post.word == Word::kCopy ? *self->requests_ : *self->answers_;
    try {
      co_await service.send(to, word_of(post.word, post.number), std::move(post.bytes), self->stop_);
    } catch (const Error&) {  // the rank is lost, which the store hears too
      self->stop_.throw_if_requested();
    }
    --self->posts_;
    self->news_.set();
  }
}

Task<void> Store::leave(Stop& stop) {
  const auto size = static_cast<int>(peers_.size());
  for (int rank = 0; rank < size; ++rank) {
    if (rank != rank_) post_to(rank, {Word::kLeaving, 0, {}});
  }
  const auto all_left = [&] {
    for (int rank = 0; rank < size; ++rank) {
      if (rank != rank_ && !peer(rank).left && !peer(rank).lost) return false;
    }
    return posts_ == 0;
  };
  while (!all_left()) {
    news_.reset();
    co_await news_.wait(stop);
  }
}

Task<void> Store::say_leaving(Stop& stop, int lost) {
  while (unsent_answers_ > 0) {
    news_.reset();
    co_await news_.wait(stop);
  }
  if (lost == rank_) lost = kNoPeer;  // another rank takes this one for lost
  const auto known = std::find_if(peers_.begin(), peers_.end(), [](const Peer& its) { return its.lost.has_value(); });
  if (lost == kNoPeer && known != peers_.end()) lost = static_cast<int>(known - peers_.begin());
  const auto reason = static_cast<std::uint64_t>(lost + 1);
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (rank != rank_) post_to(rank, {Word::kLeaving, reason, {}});
  }
  while (posts_ > 0) {
    news_.reset();
    co_await news_.wait(stop);
  }
}

// A rank is at most one barrier ahead: it has left one when all others have come to it.
Task<bool> Store::barrier(Stop& stop, std::string_view call, bool wrong) {
  const auto size = static_cast<int>(peers_.size());
  const std::uint64_t number = ++barriers_;
  for (int rank = 0; rank < size; ++rank) {
    if (rank != rank_) post_to(rank, {Word::kBarrier, number * 2 + (wrong ? 1 : 0), {}});
  }
  const auto missing = [&] {
    std::vector<int> ranks;
    for (int rank = 0; rank < size; ++rank) {
      if (rank != rank_ && peer(rank).at_barrier < number && !peer(rank).lost) ranks.push_back(rank);
    }
    return ranks;
  };
  while (!missing().empty()) {
    news_.reset();
    try {
      co_await news_.wait(stop);
    } catch (const Error& error) {
      if (error.code() != Code::kTimeout) throw;
      const std::vector<int> ranks = missing();
      throw Error(Code::kTimeout,
                  fmt::format("{} of {} waits for ranks that have not called it by the deadline: {}", call, describe(),
                              fmt::join(ranks, ", ")),
                  ranks.empty() ? kNoPeer : ranks.front());
    }
  }
  co_return wrong || std::any_of(peers_.begin(), peers_.end(), [&](const Peer& its) { return its.wrong == number; });
}

std::size_t Store::lost_ranks() const noexcept {
  return static_cast<std::size_t>(
      std::count_if(peers_.begin(), peers_.end(), [](const Peer& its) { return its.lost.has_value(); }));
}

void Store::set_updater(const UpdaterOptions& updater) {
  server_.set_updater(updater);
  std::vector<Answer> none;
  dispatch(none);
}

Task<void> Store::load(Stop& stop, int server, std::string_view bytes) {
  restore_state(server_, server, layout_.servers, bytes);
  std::vector<Answer> none;
  dispatch(none);
  while (server_.copies_anew()) {
    news_.reset();
    co_await news_.wait(stop);
  }
}

}  // namespace aiacc::kv
