// The steps of a small call, without a coroutine: small.h takes them at once, and small_queue.h as soon as it can.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/intra/one_shot.h"

namespace aiacc::intra {

// The caller of an allreduce that writes its contribution where others read it, and reads theirs there: without the copies of a call
// from one buffer into another. In a call each is called once at most, on the caller's thread, and neither throws.
class InPlace {
 public:
  virtual void write(std::byte* contribution) noexcept = 0;
  virtual void read(std::span<const std::byte* const> contributions) noexcept = 0;

 protected:
  ~InPlace() = default;
};

class SmallCall {
 public:
  static constexpr std::size_t kCacheLine = 64;
  static constexpr int kMostMembers = IntraTeam::kMostPolling;
  // The length of a contribution, if the team's members can make this call so when its turn comes; else kNotOneShot.
  static std::size_t bytes_if_served(const IntraTeam& team, const Call& call) noexcept {
    if (team.size() > kMostMembers || !team.is_whole_group() || team.failed()) return kNotOneShot;
    if (is_message(call.kind) || call.kind == Collective::kGroupedAllreduce) return kNotOneShot;
    const std::size_t bytes = contribution_bytes(call, team.size());
    if (bytes <= IntraTeam::kInlineBytes) return bytes;
    return bytes <= one_shot_bytes(call, team.size()) && team.staging_is_mapped() ? bytes : kNotOneShot;
  }

  // `number`: of its arrival, if that is published.
  SmallCall(IntraTeam& team, const Call& call, std::size_t bytes, std::uint64_t number = 0) noexcept
      : team_(team),
        call_(call),
        element_(call.element_bytes()),
        bytes_(bytes),
        is_root_(team.rank_of(team.me()) == call.root),
        awaited_(awaited_in(team, call, is_root_, staged())),
        root_(team.member_of(call.root)),
        number_(number) {}

  // Publishes this member's arrival, for which there is room.
  void arrive(InPlace& caller) noexcept {
    IntraTeam::Arrival arrival;
    arrival.fingerprint = team_.fingerprint_of(call_);
    const std::uint64_t number = team_.next_number();
    // What those who came first have written is on its way while this member writes.
    for (int member = 0; member < team_.size(); ++member) {
      if (member != team_.me() && team_.has_arrived(member, number)) prefetch_contribution(member, number);
    }
    caller.write(team_.eager(team_.me(), number));
    number_ = team_.arrive(call_, arrival);
  }
  void arrive(const std::byte* send) noexcept {
    IntraTeam::Arrival arrival;
    arrival.fingerprint = team_.fingerprint_of(call_);
    const bool gives = contributes(call_, is_root_);
    if (staged()) {
      if (gives) CpuCompute::copy_now(team_.eager(team_.me(), team_.next_number()), send, own_bytes());
    } else if (gives) {
      arrival.payload = {send, own_bytes()};
    }
    number_ = team_.arrive(call_, arrival);
  }
  std::uint64_t number() const noexcept { return number_; }
  // Somebody whose arrival is awaited, if the members before `from` have arrived; size(): nobody.
  int awaits(int from = 0) const noexcept {
    switch (awaited_) {
      case Awaited::kAll: return team_.first_behind(number_, from);
      case Awaited::kRoot: return team_.has_arrived(root_, number_) ? team_.size() : root_;
      default: return team_.size();
    }
  }
  // Whether they agree. Nobody is awaited any more.
  bool agree() const noexcept {
    if (awaited_ == Awaited::kAll) return team_.agree(number_);
    return awaited_ == Awaited::kRoot ? team_.agrees(root_, number_) : team_.agreed_so_far();
  }

  // Gets what this member needs, when they agree.
  void take(InPlace& caller) const noexcept {
    std::array<const std::byte*, kMostMembers> contributions;
    const auto members = static_cast<std::size_t>(team_.size());
    for (std::size_t member = 0; member < members; ++member) {
      contributions[member] = contribution(static_cast<int>(member), 0);
      if (static_cast<int>(member) != team_.me()) prefetch_contribution(static_cast<int>(member), number_);
    }
    caller.read({contributions.data(), members});
  }
  void take(std::byte* recv) const noexcept {
    if (bytes_ == 0) return;
    const Extent mine = call_.block(team_.me());
    switch (call_.kind) {
      case Collective::kAllreduce: return reduce({0, call_.count}, recv);
      case Collective::kReduceScatter: return reduce(mine, recv);
      case Collective::kReduce: return is_root_ ? reduce({0, call_.count}, recv) : void();
      case Collective::kBroadcast: return is_root_ ? void() : copy(root_, {0, call_.count}, recv);
      case Collective::kScatter: return copy(root_, mine, recv);
      case Collective::kGather:
        if (!is_root_) return;
        [[fallthrough]];
      case Collective::kAllgather:
        for (int member = 0; member < team_.size(); ++member) {
          const Extent to = call_.block(member);
          copy(member, {0, to.count}, recv + to.begin * element_);
        }
        return;
      case Collective::kAlltoall:
        for (int member = 0; member < team_.size(); ++member)
          copy(member, mine, recv + call_.block(member).begin * element_);
        return;
      default: return;
    }
  }

 private:
  // In an uneven allgather each member's block has its own length.
  std::size_t own_bytes() const noexcept {
    return call_.kind == Collective::kAllgather ? call_.block(team_.me()).count * element_ : bytes_;
  }

  bool staged() const noexcept { return bytes_ > IntraTeam::kInlineBytes; }
  void prefetch_contribution(int member, std::uint64_t number) const noexcept {
    const std::byte* const theirs = team_.eager(member, number);
    for (std::size_t at = 0; at < bytes_; at += kCacheLine) prefetch(theirs + at);
  }
  // A member's, from this element on.
  const std::byte* contribution(int member, std::size_t from) const noexcept {
    const std::byte* whole = staged() ? team_.eager(member, number_) : team_.payload_of(member, number_);
    return whole + from * element_;
  }
  void copy(int member, Extent from, std::byte* to) const noexcept {
    CpuCompute::copy_now(to, contribution(member, from.begin), from.count * element_);
  }
  void reduce(Extent from, std::byte* result) const noexcept {
    if (from.count == 0) return;
    std::array<const std::byte*, kMostMembers> operands;
    const auto members = static_cast<std::size_t>(team_.size());
    for (std::size_t member = 0; member < members; ++member) {
      operands[member] = contribution(static_cast<int>(member), from.begin);
    }
    team_.cpu().reduce_now({&result, 1}, {operands.data(), members}, from.count, call_.reduction, team_.size());
  }

  IntraTeam& team_;
  const Call& call_;
  const std::size_t element_;
  const std::size_t bytes_;  // the length of a contribution
  const bool is_root_;
  const Awaited awaited_;
  const int root_;
  std::uint64_t number_;
};

}  // namespace aiacc::intra
