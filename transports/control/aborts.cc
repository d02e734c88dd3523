#include "transports/control/aborts.h"

#include <algorithm>
#include <utility>

#include "base/error_about.h"

namespace aiacc {
namespace {

bool known(std::int32_t code) noexcept {
  return code > static_cast<std::int32_t>(Code::kOk) && code <= static_cast<std::int32_t>(Code::kUnreachable);
}

}  // namespace

Aborts::Aborts(ControlChannel& channel, Mailbox& mailbox, Peers& peers)
    : channel_(channel), mailbox_(mailbox), peers_(peers) {
  channel_.on<wire::GroupAborted>(
      [this](int from, const ControlChannel::Subject& about, const auto& notice) { came(from, about, notice); });
}

void Aborts::abort(const ViewPtr& view, int rank, const std::exception_ptr& error) {
  mailbox_.join(view, rank);
  MatchGroup& group = mailbox_.group(view->id());
  if (group.error) return;  // another member's abort came first
  const Error what = as_error(error);
  wire::GroupAborted notice;
  notice.code = static_cast<std::int32_t>(what.code());
  notice.rank = what.peer();
  notice.sentence = what.message();
  if (const std::vector<int> ranks = ranks_of(error); ranks.size() > 1) notice.about.assign(ranks.begin(), ranks.end());
  stop(group, notice, error);
}

void Aborts::end(MatchGroup& group, const wire::GroupAborted& notice, std::exception_ptr error) noexcept {
  if (group.error) return;
  stop(group, notice, std::move(error));
  if (observer_ != nullptr) observer_->group_aborted(group.id, group.error);
}

void Aborts::stop(MatchGroup& group, const wire::GroupAborted& notice, std::exception_ptr error) noexcept {
  group.error = std::move(error);
  Notice& kept = notices_[group.id];
  kept.message = notice;
  if (kept.message.sentence.size() > wire::kMaxControlText) kept.message.sentence.resize(wire::kMaxControlText);
  if (kept.message.about.size() > wire::kMaxControlRanks) kept.message.about.resize(wire::kMaxControlRanks);
  relay(group);
  mailbox_.end(group);
  peers_.changed.set();
}

void Aborts::relay(const MatchGroup& group) noexcept {
  Notice& notice = notices_[group.id];
  if (notice.relayed || group.view == nullptr) return;
  notice.relayed = true;
  for (const int neighbour : neighbours(group)) tell(group, neighbour);
}

// This rank's neighbours in the binomial graph, as ranks of the world: those whose distance is a power of two, in both directions.
// Who relays nothing any more has its own neighbours in its place.
std::set<int> Aborts::neighbours(const MatchGroup& group) const {
  const int size = group.view->size();
  std::set<int> found, seen{group.rank};
  std::vector<int> relays{group.rank};
  const auto meet = [&](int rank) {
    if (!seen.insert(rank).second) return;
    const int of_world = mailbox_.world_rank(group, rank);
    const auto peer = peers_.known.find(of_world);
    const bool gone = peer != peers_.known.end() && (peer->second.lost || peer->second.leaves);
    if (gone) {
      relays.push_back(rank);
    } else {
      found.insert(of_world);
    }
  };
  while (!relays.empty()) {
    const int rank = relays.back();
    relays.pop_back();
    for (int distance = 1; distance < size; distance *= 2) {
      meet((rank + distance) % size);
      meet((rank - distance + size) % size);
    }
  }
  return found;
}

void Aborts::forget(std::uint64_t id) noexcept {
  try {
    const MatchGroup* const group = mailbox_.find_group(id);
    if (group != nullptr && group->view != nullptr) keep_left(*group);
  } catch (const std::bad_alloc&) {  // it relays no notice of its end
  }
  notices_.erase(id);
}

void Aborts::keep_left(const MatchGroup& group) {
  const std::set<int> told = neighbours(group);
  Left left{{told.begin(), told.end()}, std::nullopt};
  if (const auto notice = notices_.find(group.id); notice != notices_.end()) left.notice = notice->second.message;
  if (!left_.insert_or_assign(group.id, std::move(left)).second) return;
  left_in_order_.push_back(group.id);
  if (left_in_order_.size() <= Mailbox::kForgotten) return;
  left_.erase(left_in_order_.front());
  left_in_order_.pop_front();
}

void Aborts::relay_of_left(int from, std::uint64_t id, const wire::GroupAborted& notice) {
  const auto left = left_.find(id);
  if (left == left_.end() || left->second.notice) return;
  left->second.notice = notice;
  for (const int neighbour : left->second.neighbours) {
    if (neighbour != from) channel_.send(neighbour, {id}, notice);
  }
}

bool Aborts::tell_of_left(std::uint64_t id, int to) noexcept {
  const auto left = left_.find(id);
  if (left == left_.end() || !left->second.notice) return false;
  channel_.send(to, {id}, *left->second.notice);
  return true;
}

void Aborts::tell(const MatchGroup& group, int to) noexcept {
  const auto notice = notices_.find(group.id);
  if (notice != notices_.end()) channel_.send(to, {group.id}, notice->second.message);
}

void Aborts::came(int from, const ControlChannel::Subject& about, const wire::GroupAborted& notice) {
  if (!known(notice.code)) return;
  if (mailbox_.left(about.group) != nullptr) return relay_of_left(from, about.group, notice);
  MatchGroup& group = mailbox_.group(about.group);
  const auto code = static_cast<Code>(notice.code);
  const bool about_me = notice.rank == group.rank && notice.other != kNoPeer;
  const int peer = about_me ? notice.other : notice.rank;
  end(group, notice,
      notice.about.size() > 1
          ? std::make_exception_ptr(ErrorAbout(code, notice.sentence, {notice.about.begin(), notice.about.end()}))
          : std::make_exception_ptr(Error(code, notice.sentence, peer)));
}

void Aborts::joined(MatchGroup& group) noexcept {
  if (group.error) {
    relay(group);
    return;
  }
  for (const auto& [rank, peer] : peers_.known) {
    if (!peer.lost || peer.leaves || peers_.leaving || mailbox_.group_rank(group, rank) < 0) continue;
    end_by_loss(group, rank, as_error(peer.lost));
    return;
  }
}

void Aborts::peer_lost(int rank, const std::exception_ptr& error) noexcept {
  const Error cause = as_error(error);
  std::vector<std::uint64_t> shared;
  for (const auto& [id, group] : mailbox_.groups()) {
    if (mailbox_.group_rank(group, rank) >= 0) shared.push_back(id);
  }
  for (const std::uint64_t id : shared) {  // ids and not pointers, because the observer may free groups
    if (MatchGroup* const group = mailbox_.find_group(id); group != nullptr) end_by_loss(*group, rank, cause);
  }
}

void Aborts::end_by_loss(MatchGroup& group, int rank, const Error& cause) noexcept {
  wire::GroupAborted notice;
  notice.code = static_cast<std::int32_t>(Code::kPeerFailed);
  notice.rank = mailbox_.group_rank(group, rank);
  notice.sentence = cause.message();
  end(group, notice, std::make_exception_ptr(Error(Code::kPeerFailed, notice.sentence, notice.rank)));
}

}  // namespace aiacc
