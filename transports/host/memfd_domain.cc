#include "transports/host/memfd_domain.h"

#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

#include "base/asymmetric_fence.h"
#include "base/cpu_relax.h"
#include "base/error.h"
#include "base/io/real_clock.h"

namespace aiacc {
namespace {

// The number of checks of a flag before a wait is handed to the loop: one or two microseconds if the host has a processor for
// each rank. A peer on another core completes a short step in that time, and two hand-overs to the loop take longer. With
// fewer processors the peer cannot run while this rank spins. Measured with bench/host: 256 KiB between two ranks take 22 µs
// with 100 checks and 28 with 16.
int usual_spins(int ranks) { return sysconf(_SC_NPROCESSORS_ONLN) >= ranks ? 100 : 0; }

// With more ranks, a fence for all of them by each that blocks (an interrupt of each processor, about 1 us there) is taken to cost
// more than fences of those that publish; nothing has measured where they are equal.
constexpr int kMostFenced = 32;

constexpr std::uint64_t kEverybody = ~std::uint64_t{0};

// The bit of 64 that stands for a line in a sleeper's mask. Two lines may share a bit; then a sleeper is sometimes woken for
// nothing.
std::uint64_t interest(int owner, std::uint32_t line) noexcept {
  return std::uint64_t{1} << ((static_cast<std::uint32_t>(owner) * 7 + line) % 64);
}

std::uint64_t bit_of(int rank) noexcept { return std::uint64_t{1} << (rank % 64); }
std::size_t word_of(int rank) noexcept { return static_cast<std::size_t>(rank) / 64; }

}  // namespace

std::unique_ptr<MemfdDomain> MemfdDomain::attach(int descriptor, std::uint64_t nonce, int rank, int size,
                                                 io::RealLoop& loop) {
  return std::make_unique<MemfdDomain>(SegmentMapping::map(descriptor, nonce, size), rank, loop);
}

MemfdDomain::MemfdDomain(std::shared_ptr<SegmentMapping> mapping, int rank, io::RealLoop& loop)
    : SegmentDomain(std::move(mapping), rank),
      loop_(loop),
      access_(static_cast<std::size_t>(mapping_->ranks())),
      bell_(loop),
      spins_(usual_spins(mapping_->ranks())) {
  // Long before this rank can block: a publisher that has not seen it yet has stored its flag by then.
  fences_for_all_ = mapping_->ranks() <= kMostFenced && register_for_fences();
  if (!fences_for_all_) refuse_fence();
  io::RealEntropy().fill(std::as_writable_bytes(std::span(&probe_, 1)));
  word(rank_, kCountsLine, kProcess).store(static_cast<std::uint64_t>(getpid()), std::memory_order_relaxed);
  word(rank_, kCountsLine, kProbe).store(reinterpret_cast<std::uintptr_t>(&probe_), std::memory_order_relaxed);
  word(rank_, kCountsLine, kProbeValue).store(probe_, std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < bell_.name().size(); ++i) {
    word(rank_, kSleepLine, kBellName + i).store(bell_.name()[i], std::memory_order_relaxed);
  }
  news_seen_ = mapping_->header().urgent_news.load(std::memory_order_acquire);
  loop_.add(static_cast<io::BlockGuard&>(*this));
}

MemfdDomain::~MemfdDomain() {
  mapping_->header().sleepers[word_of(rank_)].fetch_and(~bit_of(rank_), std::memory_order_relaxed);
}

void MemfdDomain::publish(std::uint32_t line, std::uint32_t word_index, std::uint64_t value) noexcept {
  if (mapping_->header().publishers_fence.load(std::memory_order_relaxed) == 0) {
    word(rank_, line, word_index).store(value, std::memory_order_release);
    light_fence();  // pairs with the fence in about_to_block()
  } else {
    word(rank_, line, word_index).store(value, std::memory_order_seq_cst);
  }
  if (value < kUrgent) {
    if (mapping_->ranks() <= 64 && mapping_->header().sleepers[0].load(std::memory_order_seq_cst) == 0) return;
    ring_sleepers(interest(rank_, line));
  } else {
    mapping_->header().urgent_news.fetch_add(1, std::memory_order_seq_cst);
    ring_sleepers(kEverybody);
  }
}

void MemfdDomain::ring_sleepers(std::uint64_t lines) noexcept {
  SegmentHeader& header = mapping_->header();
  const std::size_t words = word_of(mapping_->ranks() - 1) + 1;
  for (std::size_t i = 0; i < words; ++i) {
    std::uint64_t sleepers = header.sleepers[i].load(std::memory_order_seq_cst);
    for (; sleepers != 0; sleepers &= sleepers - 1) {
      const int sleeper = static_cast<int>(i) * 64 + __builtin_ctzll(sleepers);
      if (sleeper == rank_ || sleeper >= mapping_->ranks()) continue;
      const std::uint64_t wanted = word(sleeper, kSleepLine, kInterest).load(std::memory_order_relaxed);
      if (lines != kEverybody && (wanted & lines) == 0) continue;
      if ((header.sleepers[i].fetch_and(~bit_of(sleeper), std::memory_order_seq_cst) & bit_of(sleeper)) == 0) continue;
      ++rings_;
      const bool rung = bell_.ring({word(sleeper, kSleepLine, kBellName).load(std::memory_order_relaxed),
                                    word(sleeper, kSleepLine, kBellName + 1).load(std::memory_order_relaxed)});
      if (!rung) header.sleepers[i].fetch_or(bit_of(sleeper), std::memory_order_seq_cst);
    }
  }
}

// --- private memory of peers ------------------------------------------------------------------------------------------

bool MemfdDomain::can_read(int owner) noexcept {
  Access& access = access_[static_cast<std::size_t>(owner)];
  if (access == Access::kUnknown) {
    access = read_process(owner, nullptr, {}) ? Access::kThroughKernel : Access::kNone;
  }
  return access != Access::kNone;
}

void MemfdDomain::read_private(int owner, const std::byte* from, std::span<std::byte> into) {
  if (!can_read(owner)) return HostDomain::read_private(owner, from, into);
  // A thread of this process is read through the kernel too: if it has failed and freed the buffer, the kernel reports that,
  // and a plain copy would not.
  if (!read_process(owner, from, into)) {
    const int reason = errno;
    const std::string what = fmt::format(
        "cannot read the buffer of rank {} of this host's {} (process {}): it has ended, or freed the buffer during "
        "the call",
        owner, mapping_->ranks(), word(owner, kCountsLine, kProcess).load());
    throw Error(Code::kAborted, system_error(what, reason).message());  // the group's first error says why
  }
}

bool MemfdDomain::read_process(int owner, const std::byte* from, std::span<std::byte> into) const noexcept {
  const ControlLine& its = line(owner, kCountsLine);
  const auto process = static_cast<pid_t>(its.word[kProcess].load(std::memory_order_relaxed));
  auto* const probe = reinterpret_cast<void*>(its.word[kProbe].load(std::memory_order_relaxed));
  for (;;) {
    std::uint64_t found = 0;
    const iovec here[] = {{into.data(), into.size()}, {&found, sizeof found}};
    const iovec there[] = {{const_cast<std::byte*>(from), into.size()}, {probe, sizeof found}};  // which are only read
    const ssize_t moved = process_vm_readv(process, here, 2, there, 2, 0);
    if (moved <= 0) return false;
    const auto bytes = static_cast<std::size_t>(moved);
    if (bytes > into.size()) {
      errno = ESRCH;
      return bytes == into.size() + sizeof found && found == its.word[kProbeValue].load(std::memory_order_relaxed);
    }
    into = into.subspan(bytes);
    from += bytes;
  }
}

// --- waiting ---------------------------------------------------------------------------------------------------------

bool MemfdDomain::reached(const FlagAwait& wait) const noexcept {
  const FlagRef& flag = wait.flag();
  return line(flag.owner, flag.line).word[flag.word].load(std::memory_order_seq_cst) >= wait.value();
}

bool MemfdDomain::look(FlagAwait& wait) {
  for (int i = 0;; ++i) {
    if (wait.reached()) return true;
    if (i >= spins_) return false;
    cpu_relax();
  }
}

void MemfdDomain::begin_wait(FlagAwait& wait) noexcept {
  if (wait.value() >= kUrgent) {
    urgent_waits_.push_back(wait);
    news_seen_ = 0;  // forces one check: the value may have been published before
  } else {
    waits_.push_back(wait);
    if (!io::Poller::linked()) loop_.add(static_cast<io::Poller&>(*this));
  }
}

void MemfdDomain::cancel_wait(FlagAwait& wait) noexcept { static_cast<ListNode<FlagAwait>&>(wait).unlink(); }

bool MemfdDomain::complete_reached(IntrusiveList<FlagAwait>& waits) noexcept {
  bool any = false;
  waits.for_each([this, &any](FlagAwait& wait) {
    if (!reached(wait)) return;
    static_cast<ListNode<FlagAwait>&>(wait).unlink();
    wait.complete();
    any = true;
  });
  return any;
}

bool MemfdDomain::look_at_flags() noexcept {
  bool any = complete_reached(waits_);
  const std::uint64_t news = mapping_->header().urgent_news.load(std::memory_order_acquire);
  if (news != news_seen_) {
    news_seen_ = news;
    any |= complete_reached(urgent_waits_);
  }
  if (waits_.empty()) io::Poller::unlink();
  return any;
}

bool MemfdDomain::about_to_block() noexcept {
  if (waits_.empty() && urgent_waits_.empty()) return true;
  if (!bell_.drain()) return false;
  std::uint64_t lines = 0;
  waits_.for_each([&lines](FlagAwait& wait) { lines |= interest(wait.flag().owner, wait.flag().line); });
  word(rank_, kSleepLine, kInterest).store(lines, std::memory_order_relaxed);
  mapping_->header().sleepers[word_of(rank_)].fetch_or(bit_of(rank_), std::memory_order_seq_cst);
  asleep_ = true;
  if (!fence_before_block()) return false;
  const bool some = complete_reached(waits_);
  return !(complete_reached(urgent_waits_) || some);
}

void MemfdDomain::refuse_fence() noexcept {
  fences_for_all_ = false;
  mapping_->header().publishers_fence.store(1, std::memory_order_seq_cst);
}

// False if the system has begun to refuse the fence (a seccomp filter): publishers fence from now on, and one that has not seen that
// yet has stored its flag long before this rank tries to block again.
bool MemfdDomain::fence_before_block() noexcept {
  if (!fences_for_all_ || fence_for_all()) return true;
  refuse_fence();
  return false;
}

void MemfdDomain::woke() noexcept {
  if (!asleep_) return;
  asleep_ = false;
  mapping_->header().sleepers[word_of(rank_)].fetch_and(~bit_of(rank_), std::memory_order_relaxed);
  complete_reached(urgent_waits_);
}

}  // namespace aiacc
