#include "collectives/intra/intra_team.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"

namespace aiacc {
namespace {

// The fast path polls for about 5 µs before it leaves the wait to an operation and its loop, which yields and then blocks. With fewer
// processors than members the missing one may need this processor. Then it gives it up between polls, twice for each member, so
// that each may run and come back once; to make the operation would cost as much time as the others need.
IntraTeam::Patience usual_patience(const HostDomain& domain, int members) {
  if (!domain.ranks_run_meanwhile()) return {};
  if (sysconf(_SC_NPROCESSORS_ONLN) >= members) return {.spins = 200, .yields = 0};
  return {.spins = 0, .yields = 2 * std::min(members, 16)};
}

constexpr std::uint64_t kClosing = 0x436c6f73696e6721;
constexpr std::uint64_t kTeamKey = 0x486f73745465616d;

std::uint64_t key_of(const View& view, std::uint32_t index) {
  return Hash64().add(kTeamKey).add(view.id()).add(std::uint64_t{index}).value() | 1;
}

// Eight bytes, or those that are left.
std::uint64_t word_at(std::span<const std::byte> bytes, std::size_t at) noexcept {
  std::uint64_t word = 0;
  const std::byte* from = bytes.data() + at;
  if (bytes.size() - at >= 8) {
    std::memcpy(&word, from, 8);
  } else {
    std::memcpy(&word, from, bytes.size() - at);
  }
  return word;
}

// Waits until `owner` has claimed its `count` lines for `key`.
Task<std::uint32_t> await_lines(HostDomain& domain, int owner, std::uint64_t key, std::uint32_t count, Stop& stop) {
  const FlagRef claims = HostDomain::claims(owner);
  for (;;) {
    const std::uint64_t seen = domain.line(owner, claims.line).word[claims.word].load(std::memory_order_acquire);
    if (const auto found = domain.find_lines(owner, key, count)) co_return *found;
    co_await domain.at_least(claims, seen + 1, stop);
  }
}

}  // namespace

IntraTeam::IntraTeam(HostDomain& domain, ViewPtr view, int rank, std::vector<int> domain_ranks, std::uint32_t index)
    : domain_(domain),
      view_(std::move(view)),
      key_(key_of(*view_, index)),
      me_(0),
      domain_ranks_(std::move(domain_ranks)),
      size_(static_cast<int>(domain_ranks_.size())),
      is_whole_group_(size_ == view_->size()),
      ranks_(view_->ranks_on_host_of(rank)),
      lines_(domain_ranks_.size()),
      seen_(domain_ranks_.size()),
      ahead_(is_whole_group() && size() > 1 && size() <= kMostPolling ? kAhead : 1),
      ring_(static_cast<std::uint32_t>(2 * ahead_)),
      described_(ring_),
      staging_(domain_ranks_.size()),
      patience_(usual_patience(domain, static_cast<int>(domain_ranks_.size()))) {
  AIACC_INVARIANT(ranks_.size() == domain_ranks_.size(), "every member on this host has a rank in its domain");
  me_ = member_of(rank);
  AIACC_INVARIANT(domain_rank(me_) == domain_.rank(), "a team belongs to the rank of its domain");
  const auto at = static_cast<std::size_t>(me_);
  lines_[at] = domain_.claim_lines(key_, lines());
  own_ = &domain_.own_line(lines_[at]);
  seen_[at] = own_;
}

IntraTeam::~IntraTeam() {
  domain_.release_lines(key_);
  if (!closed_) return;
  if (my_staging_.bytes > 0) domain_.free(my_staging_);
  if (my_packs_.bytes > 0) domain_.free(my_packs_);
}

int IntraTeam::find_member(int rank) const noexcept {
  const auto found = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
  return found != ranks_.end() && *found == rank ? static_cast<int>(found - ranks_.begin()) : -1;
}

Task<void> IntraTeam::open(Stop& stop) {
  for (int member = 0; member < size(); ++member) {
    if (member == me_) continue;
    const auto at = static_cast<std::size_t>(member);
    lines_[at] = co_await await_lines(domain_, domain_rank(member), key_, lines(), stop);
    seen_[at] = &domain_.line(domain_rank(member), lines_[at]);
    can_pull_ = can_pull_ && domain_.can_read(domain_rank(member));
  }
}

// The last arrival, which a member publishes after it has read everything that it needs from the others. Others may
// read its line after this member is gone: the domain hands out lines in turn, so another team does not get the line
// soon.
Task<void> IntraTeam::close(Stop& stop) {
  if (failed_) co_return;
  Call closing;
  co_await await_room(stop);
  const std::uint64_t number = arrive(closing, {.fingerprint = kClosing});
  for (int member = 0; member < size(); ++member) {
    const FlagRef flag = arrival_flag(member, number);
    co_await domain_.at_least(flag, number, stop);
  }
  require_agreement(number);
  closed_ = true;
}

void IntraTeam::fail(std::uint64_t number) noexcept {
  if (!std::exchange(failed_, true) && number != 0 && number <= arrivals_) publish(kFailed, number);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // the caller's stores come after it
}

void IntraTeam::require_whole(std::uint64_t number) const {
  std::atomic_thread_fence(std::memory_order_acquire);  // the loads of the operation came before
  for (int member = 0; member < size(); ++member) {
    const std::uint64_t failed = progress(member, kFailed);
    if (failed == 0 || failed > number) continue;
    throw Error(Code::kAborted, fmt::format("rank {} stopped in this operation", rank_of(member)));
  }
}

// The number is in the first of the line's two cache lines, which the others poll. Everything else is stored before that one, and that
// one from its end to its beginning without a break: if another core took it in between, it would have to come back once more.
std::uint64_t IntraTeam::arrive(const Call& call, const Arrival& arrival) noexcept {
  const std::uint64_t number = ++arrivals_;
  describe(call, arrival.fingerprint, number);
  ControlLine& line = own_arrival(number);
  if (arrival.payload.empty()) {
    line.word[kPrivateWord].store(reinterpret_cast<std::uintptr_t>(arrival.private_send), std::memory_order_relaxed);
    line.word[kPrivateWord + 1].store(can_pull_ && arrival.on_host, std::memory_order_relaxed);
  }
  for (std::size_t i = (arrival.payload.size() + 7) / 8; i-- > 0;) {
    line.word[kPayloadWord + i].store(word_at(arrival.payload, 8 * i), std::memory_order_relaxed);
  }
  line.word[3].store(arrival.recv ? *arrival.recv + 1 : 0, std::memory_order_relaxed);
  line.word[2].store(arrival.send ? *arrival.send + 1 : 0, std::memory_order_relaxed);
  history_ = (std::rotl(history_, 7) ^ arrival.fingerprint) * 0x9e3779b97f4a7c15;
  line.word[1].store(history_, std::memory_order_relaxed);
  domain_.publish(arrival_line(me_, number), 0, number);
  return number;
}

// Calls with one fingerprint have one description, but for uneven ones, whose members may give different lengths.
void IntraTeam::describe(const Call& call, std::uint64_t fingerprint, std::uint64_t number) noexcept {
  std::uint64_t& described = described_[in_ring(number)];
  if (described == fingerprint && !call.uneven) return;
  described = call.uneven ? 0 : fingerprint;
  ControlLine& called = own_[call_line() + in_ring(number)];
  const CallSummary summary = call.summary();
  std::array<std::uint64_t, sizeof(CallSummary) / 8> words;
  static_assert(sizeof words == sizeof(CallSummary) && sizeof(CallSummary) <= sizeof(ControlLine));
  std::memcpy(words.data(), &summary, sizeof summary);
  for (std::size_t i = 0; i < words.size(); ++i) called.word[i].store(words[i], std::memory_order_relaxed);
}

// A difference that is found here is reported by the call that looks for room, once it has arrived.
int IntraTeam::look_for_room() noexcept {
  if (disagreed_ != 0) return size();
  std::uint64_t all = room_number();
  if (const int behind = first_behind(all); behind < size()) return behind;
  // The last one to which all have come, at which the next look is due.
  for (std::uint64_t step = std::bit_floor(arrivals_ - all + 1); step > 0; step /= 2) {
    if (all + step <= arrivals_ && first_behind(all + step) == size()) all += step;
  }
  agree(all);
  return size();
}

Task<void> IntraTeam::await_room(Stop& stop) {
  for (;;) {
    const int behind = first_too_far_behind();
    if (behind == size()) co_return;
    co_await domain_.at_least(arrival_flag(behind, room_number()), room_number(), stop);
  }
}

CallSummary IntraTeam::call_of(int member, std::uint64_t number) const noexcept {
  const std::uint32_t at = arrival_line(member, number) + call_line();
  const ControlLine& called = domain_.line(domain_rank(member), at);
  std::array<std::uint64_t, sizeof(CallSummary) / 8> words;
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = called.word[i].load(std::memory_order_relaxed);
  CallSummary call;
  // The peer may have written any bytes: makes the bool valid and terminates the name.
  reinterpret_cast<std::byte*>(words.data())[offsetof(CallSummary, uneven)] &= std::byte{1};
  std::memcpy(static_cast<void*>(&call), words.data(), sizeof call);
  call.op_name[sizeof call.op_name - 1] = 0;
  return call;
}

void IntraTeam::require_agreement(std::uint64_t number, int from) {
  from == kAll ? agree(number) : agrees(from, number);
  require_agreed_so_far();
}

void IntraTeam::require_agreed_so_far() const {
  if (disagreed_ == 0) return;
  int first = 0;
  while (!has_arrived(first, disagreed_)) ++first;
  for (int member = first + 1; member < size(); ++member) {
    if (!has_arrived(member, disagreed_) || history_of(member, disagreed_) == history_of(first, disagreed_)) continue;
    std::uint64_t number = disagreed_;
    while (number > agreed_ + 1 && history_of(member, number - 1) != history_of(first, number - 1)) --number;
    throw Error(Code::kMismatch,
                fmt::format("the ranks of a group call different collectives: rank {}: {}; rank {}: {}", rank_of(first),
                            call_of(first, number).describe(), rank_of(member), call_of(member, number).describe()),
                rank_of(member));
  }
}

std::uint64_t IntraTeam::store_id(std::uint64_t number) const noexcept {
  return Hash64().add(key_).add(number).value() | 1;
}

void IntraTeam::need_staging() {
  if (my_staging_.bytes > 0) return;
  my_staging_ = domain_.allocate(staging_bytes());
  publish(kStaging, my_staging_.offset + 1);
}

Buffer IntraTeam::pack_memory(std::size_t bytes) {
  if (my_packs_.bytes < bytes) {
    if (my_packs_.bytes > 0) domain_.free(my_packs_);
    my_packs_ = {};
    my_packs_ = domain_.allocate(bytes);
  }
  return {domain_.view(domain_.rank(), my_packs_.offset, bytes), bytes};
}

std::byte* IntraTeam::staging(int member) {
  std::byte*& known = staging_[static_cast<std::size_t>(member)];
  if (known == nullptr) known = domain_.view(domain_rank(member), progress(member, kStaging) - 1, staging_bytes());
  return known;
}

}  // namespace aiacc
