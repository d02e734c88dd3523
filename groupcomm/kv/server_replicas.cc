// A server with replicas: whose parts it serves, what it takes over, and what it copies anew.
//
// The parts of a server are served by itself, or else by the next living one in the order (a ring), and their other copy is with the
// next living one after that. So what dies next leaves its parts where they are looked for. When a loss moves a copy's place, the
// server that serves the parts copies them whole, one after the other, with at most kCopyingBytes that the new place has not
// confirmed: pushes go on meanwhile. A part that has not had its turn is changed without a copy, because the copy to come has the
// change; from its turn on each change is copied behind it, as always. kComplete follows the last part of each server: who serves
// its parts later without having got that has lost values, and says so.
//
// A source that dies in the middle leaves the new place with what came, which is as the source acknowledged it last, and without
// the rest. A new place that dies is replaced, and all is copied again. Creations meanwhile are copied at once.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "groupcomm/kv/server.h"

namespace aiacc::kv {
namespace {

constexpr std::size_t kCopyingBytes = 1 << 20;  // a quarter of the credit for what one rank sends to another

}  // namespace

bool Server::serves(int server) const noexcept {
  if (place_.index < 0) return false;
  const auto back = [&](int from) { return (place_.index + place_.servers - from) % place_.servers; };
  return back(server) <= back(first_);
}

int Server::next_living() const noexcept {
  for (int step = 1; step < place_.servers; ++step) {
    const int server = (place_.index + step) % place_.servers;
    if (!lost_servers_.contains(server)) return server;
  }
  return -1;
}

void Server::take_over(std::span<const std::byte> payload) {
  const CopyView view(payload, rules_.workers);
  if (view.head.server < 0 || view.head.server >= place_.servers)
    throw Error(Code::kProtocol, "a copy of a part of a server that does not exist");
  if (view.head.defines == static_cast<std::uint32_t>(CopyOf::kComplete)) {
    complete_[static_cast<std::size_t>(view.head.server)] = true;
    return;
  }
  Key& key = keys_[std::string(view.key)];
  if (view.head.defines != 0) {
    key.shape = view.head.shape();
    return;
  }
  Kept& kept = key.parts[view.head.part];
  const Shape shape = view.head.shape();
  if (kept.part == nullptr) {
    kept.server = view.head.server;
    kept.part = std::make_unique<Part>(std::string(view.key), rules_, shape, view.head.first,
                                       std::make_shared<Version>(shape.bytes(), memory_), memory_);
    std::vector<Answer> none;
    for (const auto& [worker, why] : lost_) kept.part->lost(worker, why, none);
  }
  if (kept.part->shape() != shape)
    throw Error(Code::kProtocol, fmt::format("a copy of a part of {} has another shape", describe_key(view.key)));
  kept.part->take_over(view.copy);
}

void Server::server_lost(int server, std::vector<Answer>& answers) {
  if (!place_.replicas || !lost_servers_.insert(server).second || place_.index < 0) return;
  std::vector<int> more;  // whose parts this server serves from now on
  while (before(first_) != place_.index && lost_servers_.contains(before(first_))) {
    first_ = before(first_);
    more.push_back(first_);
    if (!complete_[static_cast<std::size_t>(first_)]) news_.push_back({true, first_});
  }
  if (const int next = next_living(); next != replica_) {
    replica_ = next;
    copies_.restart(replica_ >= 0, answers);
    to_copy_.clear();
    copying_.clear();
    copying_bytes_ = 0;
    more = served();
  }
  for (const int one : more) copy_anew(one);
  copy_some();
  after_loss_ = copies_anew() && (after_loss_ || !more.empty());
  serve_early(answers);
}

void Server::serve_early(std::vector<Answer>& answers) {
  for (Early& early : std::exchange(early_, {})) {
    if (is_early(early.server)) {
      early_.push_back(std::move(early));
    } else {
      request(early.worker, early.id, std::move(early.payload), answers);
    }
  }
}

void Server::copy_anew(int server) {
  if (replica_ < 0) return;
  for (auto& [name, key] : keys_) {
    if (key.shape && home_of(name, place_.servers) == server) to_copy_.push_back({server, CopyOf::kShape, name, 0});
    for (auto& [number, kept] : key.parts) {
      if (kept.server != server) continue;
      kept.copied = false;
      to_copy_.push_back({server, CopyOf::kPart, name, number});
    }
  }
  if (complete_[static_cast<std::size_t>(server)]) to_copy_.push_back({server, CopyOf::kComplete, {}, 0});
}

void Server::copy_some() {
  const auto add = [this](ServiceBytes bytes) {
    const std::size_t size = bytes.size();
    copying_.emplace_back(copies_.add(std::move(bytes)), size);
    copying_bytes_ += size;
    return copying_.back().first;
  };
  while (!to_copy_.empty() && copying_bytes_ < kCopyingBytes) {
    const ToCopy next = std::move(to_copy_.front());
    to_copy_.pop_front();
    if (next.what == CopyOf::kComplete) {
      add(copy_that_completes(next.server));
      continue;
    }
    Key& key = keys_[next.key];
    if (next.what == CopyOf::kShape) {
      add(copy_of_shape(next.server, next.key, *key.shape));
      continue;
    }
    Kept& kept = key.parts[next.part];
    if (kept.copied) continue;  // it was created again
    Part& part = *kept.part;
    part.track();
    static_cast<void>(part.take_change());  // the copy has it
    kept.copied = true;
    kept.copy = add(copy_of_whole_part(next.server, next.key, next.part, part, memory_));
    for (int worker = 0; worker < part.workers(); ++worker) {
      if (!part.failed(worker)) continue;
      Change change;
      change.some = true;
      change.workers = {worker};
      change.error = part.failed(worker);
      kept.copy = add(copy_of_part(next.server, next.key, next.part, part, std::move(change), memory_));
    }
  }
}

void Server::confirmed(std::uint64_t number, std::vector<Answer>& answers) {
  copies_.confirmed(number, answers);
  const bool copied = copies_anew();
  while (!copying_.empty() && copying_.front().first <= number) {
    copying_bytes_ -= copying_.front().second;
    copying_.pop_front();
  }
  copy_some();
  if (copied && !copies_anew() && std::exchange(after_loss_, false)) news_.push_back({false, replica_});
}

std::vector<int> Server::served() const {
  std::vector<int> served;
  if (place_.index < 0) return served;
  for (int one = place_.index;; one = before(one)) {
    served.push_back(one);
    if (one == first_) return served;
  }
}

void Server::check_whole(int server) const {
  if (!place_.replicas || complete_[static_cast<std::size_t>(server)]) return;
  const int rank = place_.ranks[static_cast<std::size_t>(server)];
  throw Error(Code::kPeerFailed,
              fmt::format("values of rank {} are lost: it was lost before rank {} had all of them", rank, rank_), rank);
}

void Server::replaced(int server) {
  copy_anew(server);
  copy_some();
}

// What another kind of updater remembers. All servers do so, each with all that it has, one earlier than the other. After a loss one
// may get copies of a state that it has forgotten already, from one that has not: others follow them.
void Server::forget_states() {
  for (auto& [name, key] : keys_) {
    for (auto& [number, kept] : key.parts) kept.part->state() = {};
  }
  if (lost_servers_.empty()) return;
  to_copy_.clear();
  for (const int one : served()) copy_anew(one);
  copy_some();
}

Error Server::lost_with(std::string_view key) const {
  const int last = place_.ranks[static_cast<std::size_t>(before(place_.index))];
  return Error(Code::kPeerFailed,
               fmt::format("{} is lost: rank {} had it, and was lost before rank {} had all of its values",
                           describe_key(key), last, rank_),
               last);
}

}  // namespace aiacc::kv
