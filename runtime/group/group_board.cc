#include "runtime/group/group_board.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error_about.h"
#include "base/hash.h"
#include "base/printable.h"

namespace aiacc {
namespace {

// Words from a member's first line on: the flag, code and peer, then the zero-terminated sentence, which continues in the next
// lines.
constexpr std::uint32_t kFlag = 0;
constexpr std::uint32_t kCodeAndPeer = 1;
constexpr std::uint32_t kText = 2;
constexpr std::uint32_t kWords = 16;
// In the line of arrivals, whose word 0 is the sequence: 0; kSendsNoMore once the member sends no message any more; kDone once it is done
// with the group.
constexpr std::uint32_t kDoneWord = 1;
constexpr std::uint64_t kDone = 1, kSendsNoMore = 2;
// In the same line: the ranks that the abort's error is about, one bit for each rank of the group up to 895.
constexpr std::uint32_t kAbout = 2;
constexpr int kMostAbout = static_cast<int>(kWords - kAbout) * 64;

// Whether an abort can have this code; the word was written by another process.
bool is_failure(Code code) noexcept {
  return code >= Code::kInvalidArgument && code <= Code::kUnreachable && code != Code::kPending;
}

}  // namespace

GroupBoard::GroupBoard(HostDomain& domain, std::uint64_t view_id, std::vector<int> local, std::vector<int> ranks,
                       int me, int size, Observer& observer)
    : domain_(domain),
      key_(Hash64().add(view_id).add("board").value()),
      local_(std::move(local)),
      ranks_(std::move(ranks)),
      me_(me),
      size_(size),
      observer_(observer),
      idle_(domain.loop()) {
  lines_.resize(local_.size());
  lines_[static_cast<std::size_t>(me_)] = domain_.claim_lines(key_, kLines);
  arrivals_ = &domain_.own_line(lines_[static_cast<std::size_t>(me_)] + kArrivals);
}

GroupBoard::~GroupBoard() {
  say_done();  // lines of a rank that leaves stay
  domain_.release_lines(key_);
}

Task<void> GroupBoard::open(Stop& stop) {
  const int size = static_cast<int>(local_.size());
  for (int distance = 1; distance < size; distance *= 2) {
    const int member = (me_ + size - distance) % size;
    watchers_.push_back(std::make_unique<Root>(domain_.loop(), watch(member), static_cast<Root::Owner&>(*this)));
  }
  watching_ = watchers_.size();
  if (watching_ == 0) idle_.set();
  for (auto& watcher : watchers_) watcher->start();
  for (int member = 0; member < size; ++member) co_await find(member, stop);
}

bool GroupBoard::look_for(int member) {
  const auto at = static_cast<std::size_t>(member);
  if (lines_[at] == 0) lines_[at] = domain_.find_lines(local_[at], key_, kLines).value_or(0);
  return lines_[at] != 0;
}

Task<void> GroupBoard::find(int member, Stop& stop) {
  const FlagRef claims = HostDomain::claims(local_[static_cast<std::size_t>(member)]);
  while (true) {
    const std::uint64_t seen =
        domain_.line(claims.owner, claims.line).word[claims.word].load(std::memory_order_acquire);
    if (look_for(member)) co_return;
    co_await domain_.at_least(claims, seen + 1, stop);
  }
}

Task<void> GroupBoard::close() {
  stop_.request(std::make_exception_ptr(Error(Code::kAborted, "the group is closing")));
  if (watchers_.empty()) co_return;
  Stop none;
  co_await idle_.wait(none);
}

Task<void> GroupBoard::watch(int member) {
  const auto at = static_cast<std::size_t>(member);
  co_await find(member, stop_);
  watched_.push_back({member, &line_of(member, 0).word[kFlag]});
  co_await domain_.at_least({local_[at], lines_[at], kFlag}, HostDomain::kUrgent, stop_);
  const std::exception_ptr error = read_abort(member);
  if (keeps_lines(member)) observer_.aborted_by_member(error);
}

void GroupBoard::root_ended(Root&, std::exception_ptr) noexcept {
  if (--watching_ == 0) idle_.set();
}

std::vector<int> GroupBoard::missing(std::uint64_t sequence) const {
  std::vector<int> ranks;
  for (int member = 0; member < static_cast<int>(local_.size()); ++member) {
    if (!is_found(member) || line_of(member, kArrivals).word[0].load(std::memory_order_relaxed) < sequence) {
      ranks.push_back(ranks_[static_cast<std::size_t>(member)]);
    }
  }
  return ranks;
}

std::vector<int> GroupBoard::not_here() const {
  std::vector<int> ranks;
  for (int member = 0; member < static_cast<int>(local_.size()); ++member) {
    if (!is_found(member)) ranks.push_back(ranks_[static_cast<std::size_t>(member)]);
  }
  return ranks;
}

std::vector<int> GroupBoard::done_here() const {
  std::vector<int> ranks;
  for (int member = 0; member < static_cast<int>(local_.size()); ++member) {
    if (member != me_ && is_found(member) && is_done(member)) ranks.push_back(ranks_[static_cast<std::size_t>(member)]);
  }
  return ranks;
}

void GroupBoard::say_done() noexcept {
  said_done_ = true;
  arrivals_->word[kDoneWord].store(kDone, std::memory_order_release);
}

void GroupBoard::say_last() noexcept {
  if (!said_done_) arrivals_->word[kDoneWord].store(kSendsNoMore, std::memory_order_release);
}

bool GroupBoard::has_said_last(int member) const noexcept {
  return member != me_ && is_found(member) &&
         line_of(member, kArrivals).word[kDoneWord].load(std::memory_order_acquire) != 0;
}

bool GroupBoard::keeps_lines(int member) const noexcept {
  std::atomic_thread_fence(std::memory_order_acquire);  // behind what was read of them
  const auto at = static_cast<std::size_t>(member);
  return domain_.find_lines(local_[at], key_, kLines) == lines_[at];
}

// The word is read before the lines are looked up: if the lines belong to the group afterwards, they did when it was read.
bool GroupBoard::is_done(int member) const noexcept {
  return line_of(member, kArrivals).word[kDoneWord].load(std::memory_order_acquire) == kDone || !keeps_lines(member);
}

void GroupBoard::post_abort(const std::exception_ptr& error) noexcept {
  if (posted_) return;
  posted_ = true;
  const Error what = as_error(error);
  char text[kTextBytes] = {};
  const std::string_view fits = shortened(what.message(), sizeof text - 1);
  std::memcpy(text, fits.data(), fits.size());
  const std::uint32_t first = lines_[static_cast<std::size_t>(me_)];
  const auto word = [&](std::uint32_t index) -> std::atomic<std::uint64_t>& {
    return domain_.own_line(first + index / kWords).word[index % kWords];
  };
  word(kCodeAndPeer)
      .store(static_cast<std::uint64_t>(static_cast<std::uint32_t>(what.code())) << 32 |
                 static_cast<std::uint32_t>(what.peer()),
             std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < kTextBytes / 8; ++i) {
    std::uint64_t bytes;
    std::memcpy(&bytes, text + 8 * i, 8);
    word(kText + i).store(bytes, std::memory_order_relaxed);
  }
  for (const int rank : ranks_of(error)) {
    if (rank >= kMostAbout) break;
    std::atomic<std::uint64_t>& bits = arrivals_->word[kAbout + static_cast<std::uint32_t>(rank) / 64];
    bits.store(bits.load(std::memory_order_relaxed) | std::uint64_t{1} << (rank % 64), std::memory_order_relaxed);
  }
  domain_.publish(first, kFlag, HostDomain::kUrgent);  // release: pairs with the acquire of the watchers' at_least
}

std::exception_ptr GroupBoard::abort_of(int rank) const {
  const auto found = std::find(ranks_.begin(), ranks_.end(), rank);
  const auto member = static_cast<int>(found - ranks_.begin());
  if (found == ranks_.end() || member == me_ || !is_found(member)) return nullptr;
  if (line_of(member, 0).word[kFlag].load(std::memory_order_acquire) == 0) return nullptr;
  std::exception_ptr error = read_abort(member);
  return keeps_lines(member) ? error : nullptr;
}

std::exception_ptr GroupBoard::read_abort(int member) const {
  const auto word = [&](std::uint32_t index) {
    return line_of(member, index / kWords).word[index % kWords].load(std::memory_order_relaxed);
  };
  char text[kTextBytes + 1] = {};
  for (std::uint32_t i = 0; i < kTextBytes / 8; ++i) {
    const std::uint64_t bytes = word(kText + i);
    std::memcpy(text + 8 * i, &bytes, 8);
  }
  const std::uint64_t code_and_peer = word(kCodeAndPeer);
  const auto code = static_cast<Code>(static_cast<std::int32_t>(code_and_peer >> 32));
  const auto peer = static_cast<std::int32_t>(static_cast<std::uint32_t>(code_and_peer));
  std::vector<int> about;
  bool known = is_failure(code) && peer >= kNoPeer && peer < size_;
  for (int rank = 0; rank < kMostAbout; ++rank) {
    const std::uint64_t bits =
        line_of(member, kArrivals).word[kAbout + static_cast<std::uint32_t>(rank) / 64].load(std::memory_order_relaxed);
    if ((bits >> (rank % 64) & 1) == 0) continue;
    known = known && rank < size_;
    about.push_back(rank);
  }
  if (!known) {
    const int rank = ranks_[static_cast<std::size_t>(member)];
    return std::make_exception_ptr(Error(
        Code::kProtocol,
        fmt::format("rank {} has aborted its group of {} ranks with an error that cannot be (code {}, about rank {}): "
                    "something has overwritten the host's segment",
                    rank, size_, static_cast<std::int32_t>(code), about.empty() ? peer : about.back()),
        rank));
  }
  if (about.size() > 1) return std::make_exception_ptr(ErrorAbout(code, text, std::move(about)));
  return std::make_exception_ptr(Error(code, text, peer));
}

}  // namespace aiacc
