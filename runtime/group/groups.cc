#include "runtime/group/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "runtime/context.h"
#include "runtime/group/group.h"

namespace aiacc {
namespace {

// The interval at which a group that found no free lines checks whether freed groups have gone.
constexpr Duration kLookAgain = std::chrono::milliseconds(1);

std::vector<Member> members_of(const View& parent, const GroupOrder& order) {
  std::vector<Member> members;
  members.reserve(order.ranks.size());
  for (const int rank : order.ranks) members.push_back(parent.member(rank));
  return members;
}

// "the group of ranks 0, 2, 4 of the world"
std::string name_of(const GroupOrder& order, const std::vector<Member>& members) {
  constexpr std::size_t kNamed = 8;
  if (!order.name.empty()) return fmt::format("group '{}'", order.name);
  std::string text = "the group of the world's ranks ";
  for (std::size_t i = 0; i < members.size() && i < kNamed; ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", members[i].id);
  return members.size() > kNamed ? text + " …," : text + ",";
}

}  // namespace

Groups::Groups(Context& context) noexcept : context_(context) {}

Groups::~Groups() = default;

std::uint64_t Groups::key_of(const View& parent, const GroupOrder& order) {
  Hash64 hash;
  hash.add(parent.id()).add(static_cast<std::uint64_t>(order.sort)).add(order.key);
  for (const int rank : order.ranks) hash.add(static_cast<std::uint64_t>(rank));
  const std::uint64_t description = hash.value();
  return Hash64().add(description).add(++made_[description]).value();
}

std::unique_ptr<Group> Groups::made_of(const View& parent, const GroupOrder& order, std::uint64_t key) {
  std::vector<Member> members = members_of(parent, order);
  std::string name = name_of(order, members);
  auto view = std::make_shared<const View>(parent.job(), parent.id(), key, parent.epoch(), std::move(members));
  const int rank = view->rank_of(context_.self());
  const Duration timeout = order.timeout == Duration::zero() ? context_.config().timeout : order.timeout;
  auto group = std::make_unique<Group>(context_, std::move(view), rank, std::move(name), timeout);
  group->set_traffic_class(order.traffic_class);
  return group;
}

Task<void> Groups::make(const View& parent, GroupOrder order, Group** made, Stop& stop) {
  const std::uint64_t key = key_of(parent, order);
  co_await collect();
  std::unique_ptr<Group> group;
  while (group == nullptr) {
    bool wait = false;
    try {
      group = made_of(parent, order, key);
    } catch (const Error& error) {
      wait = error.code() == Code::kOutOfMemory && some_leave();
      if (!wait) throw;
    }
    if (!wait) break;
    co_await sleep_for(context_.lane().loop(), kLookAgain, stop);
    co_await collect();
  }
  for (const Loss& loss : lost_) group->member_lost(loss.member, loss.error);
  *made = group.get();
  groups_.emplace(group->view().id(), std::move(group));
}

bool Groups::some_leave() const noexcept {
  return std::any_of(groups_.begin(), groups_.end(),
                     [](const auto& entry) { return entry.second->handles_are_gone(); });
}

bool Groups::may_close(Group& group) {
  return group.may_close([&](int rank) {
    return std::any_of(lost_.begin(), lost_.end(),
                       [&](const Loss& loss) { return loss.member == group.view().member(rank); });
  });
}

Task<void> Groups::collect() {
  std::vector<std::unique_ptr<Group>> leaving;
  for (auto entry = groups_.begin(); entry != groups_.end();) {
    Group& group = *entry->second;
    const auto next = std::next(entry);
    if (group.handles_are_gone() && may_close(group)) {
      remember_elsewhere(group);
      leaving.push_back(std::move(entry->second));
      groups_.erase(entry);
    }
    entry = next;
  }
  for (const auto& group : leaving) co_await group->close();
}

Task<void> Groups::close() {
  std::vector<std::unique_ptr<Group>> leaving;
  for (auto& entry : groups_) leaving.push_back(std::move(entry.second));
  groups_.clear();
  for (const auto& group : leaving) co_await group->close(Group::Memory::kMayBeRead);
}

std::set<int> Groups::members_elsewhere() const {
  std::set<int> ranks;
  for (const auto& [id, group] : groups_) add_elsewhere(*group, ranks);
  for (auto former = former_elsewhere_.rbegin(); former != former_elsewhere_.rend() && ranks.size() < kMostToTell;
       ++former)
    ranks.insert(*former);
  return ranks;
}

void Groups::remember_elsewhere(const Group& group) {
  std::set<int> ranks;
  add_elsewhere(group, ranks);
  for (const int rank : ranks) {
    std::erase(former_elsewhere_, rank);
    former_elsewhere_.push_back(rank);
    if (former_elsewhere_.size() > kMostToTell) former_elsewhere_.pop_front();
  }
}

void Groups::add_elsewhere(const Group& group, std::set<int>& ranks) const {
  const View& view = group.view();
  if (view.hosts() == 1 || view.size() > static_cast<int>(kMostToTell)) return;
  for (const Member& member : view.members()) {
    if (ranks.size() >= kMostToTell) return;
    if (member.host != context_.self().host) ranks.insert(static_cast<int>(member.id));
  }
}

Group* Groups::find(std::uint64_t id) noexcept {
  const auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : found->second.get();
}

void Groups::rank_lost(const Member& member, const std::exception_ptr& error) {
  lost_.push_back({member, error});
  for (auto& entry : groups_) entry.second->member_lost(member, error);
}

}  // namespace aiacc
