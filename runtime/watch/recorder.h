// Recorder: a flight recorder of the last operations of a context. It is always on: when a job hangs or fails, the last
// operations of each rank say more than the error of the rank that noticed (PyTorch's Flight Recorder and NCCL's RAS
// serve the same purpose).
//
// A ring of fixed size. The thread that drives the lane writes it with a few plain stores for each operation, without
// allocation or lock. Any thread may read it concurrently: an entry has a version, and a copy made across two versions, or
// during a write, is discarded (a seqlock).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/time.h"
#include "collectives/operation.h"
#include "collectives/plain_call.h"

namespace aiacc {

// A short text stored in 64-bit words, truncated to fit.
template <std::size_t kBytes>
class Label {
 public:
  static_assert(kBytes % 8 == 0);
  Label() = default;
  explicit Label(std::string_view text) noexcept { text.copy(text_, kBytes); }
  std::string text() const { return std::string(text_, strnlen(text_, kBytes)); }

 private:
  char text_[kBytes] = {};
};

// What does not change between the operations of a group.
struct RecordedGroup {
  std::uint64_t id = 0;
  Label<48> name;
  std::uint64_t stamp = 0;  // of Recorder::stamp(): an entry that has it need not be given the rest again; 0: none
};

// One recorded operation.
struct Record {
  enum class State : std::uint32_t { kRunning, kEnded };
  struct Outcome {
    State state = State::kRunning;
    Code code = Code::kOk;
  };
  std::uint64_t number = 0;    // of this context's operations, from 1
  std::uint64_t sequence = 0;  // its ticket in the group
  Instant began{};
  Instant ended{};
  Outcome outcome;
  RecordedGroup group;
  Label<24> name;
  CallSummary call;

  // "allreduce of 1024 fp32, sum 'gradients' (operation 12 of the world) ended well 0.35 s ago, after 0.012 s"
  std::string describe(Instant now) const;
  // `wall_ns` is the time of day at `now`.
  Json to_json(Instant now, std::int64_t wall_ns) const;
};

class Recorder {
 public:
  static constexpr std::size_t kRecords = 64;

  Recorder();

  // --- the lane's thread -----------------------------------------------------------------------------------------------
  // Records the begin of an operation; returns its number for end().
  std::uint64_t begin(const RecordedGroup& group, std::uint64_t sequence, const Call& call, std::string_view name,
                      Instant now) noexcept;
  std::uint64_t begin(const RecordedGroup& group, std::uint64_t sequence, const PlainCall& call, Instant now) noexcept;
  void end(std::uint64_t number, Code code, Instant now) noexcept;
  // The number of which these are the low bits, if fewer than 2^32 operations have begun since.
  std::uint64_t number_of(std::uint32_t low) const noexcept {
    const std::uint64_t begun = begun_.load(std::memory_order_relaxed);
    return begun - static_cast<std::uint32_t>(begun - low);
  }
  // Records an operation of the fast path, which begins and succeeds at once. `about` may lie some milliseconds back: a
  // clock that is read for each operation of 0.3 us would be the largest part of the recorder's cost (28 ns;
  // Loop::about_now() takes 5).
  void add(const RecordedGroup& group, std::uint64_t sequence, const Call& call, Instant about) noexcept;
  void add(const RecordedGroup& group, std::uint64_t sequence, const PlainCall& call, Instant about) noexcept;
  // The same in two steps, of which the first is for time that would be spent waiting: nothing is recorded before the second, and
  // nothing of the first is left if another operation is recorded instead.
  void prepare(const RecordedGroup& group, std::uint64_t sequence, const Call& call, Instant about) noexcept;
  void add_prepared() noexcept {
    const std::uint64_t number = begun_.load(std::memory_order_relaxed) + 1;
    publish(entries_[place_of(number)], number, Phase::kEnded);
  }
  // For a group that begins.
  std::uint64_t stamp() noexcept { return ++stamps_; }

  // --- any thread ------------------------------------------------------------------------------------------------------
  // The last of them, at most so many, the oldest first. One that is being written at this moment is left out.
  std::vector<Record> last(std::size_t most = kRecords) const;

 private:
  // All there is of most operations: one cache line.
  struct alignas(64) Entry {
    std::atomic<std::uint64_t> version{0};  // version_of()
    std::atomic<std::uint64_t> sequence{0};
    std::atomic<std::uint64_t> began{0};
    std::atomic<std::uint64_t> ended{0};
    std::atomic<std::uint64_t> head{0};  // Head
    std::atomic<std::uint64_t> root_and_tag{0};
    std::atomic<std::uint64_t> count{0};
    std::atomic<std::uint64_t> group_stamp{0};  // of the group in its Rest
  };
  static_assert(sizeof(Entry) == 64);
  // What an entry does not say. The group stays from one use of the entry to the next of the same group.
  struct Rest {
    std::array<std::atomic<std::uint64_t>, sizeof(RecordedGroup) / 8> group{};
    std::array<std::atomic<std::uint64_t>, sizeof(Label<24>) / 8> name{};    // if the head says kName
    std::array<std::atomic<std::uint64_t>, sizeof(CallSummary) / 8> call{};  // if it says kCall
  };
  struct Head {
    std::int32_t code = 0;
    Collective kind = Collective::kBarrier;
    std::uint8_t type = 0;
    std::uint8_t op = 0;
    std::uint8_t in_rest = 0;  // kName, kCall
  };
  static constexpr std::uint8_t kName = 1;
  static constexpr std::uint8_t kCall = 2;
  static_assert(sizeof(Head) == 8);
  // An entry's version is the number of its operation and how far it has come: a copy made across two versions, or of an even one, is
  // discarded.
  enum class Phase : std::uint64_t { kBegins = 0, kRunning = 1, kEnds = 2, kEnded = 3 };
  static constexpr std::uint64_t version_of(std::uint64_t number, Phase phase) noexcept {
    return number << 2 | static_cast<std::uint64_t>(phase);
  }

  static std::uint64_t count_of(Instant when) noexcept;
  static std::size_t place_of(std::uint64_t number) noexcept { return number % kRecords; }
  struct Times {
    Instant began{};
    Instant ended{};
  };
  std::uint64_t write(const RecordedGroup& group, std::uint64_t sequence, const PlainCall& call, Times times,
                      Phase phase) noexcept;
  // Everything but publish().
  Entry& compose(std::uint64_t number, const RecordedGroup& group, std::uint64_t sequence, const PlainCall& call,
                 Times times) noexcept;
  Entry& compose(std::uint64_t number, const RecordedGroup& group, std::uint64_t sequence, const Call& call,
                 std::string_view name, Times times) noexcept;
  Entry& begin_entry(std::uint64_t number, const RecordedGroup& group, std::uint64_t sequence, const PlainCall& call,
                     Times times) noexcept;
  void put_group(std::uint64_t number, const RecordedGroup& group) noexcept;
  std::uint64_t publish(Entry& entry, std::uint64_t number, Phase phase) noexcept;
  bool read(std::uint64_t number, Record* record) const noexcept;

  std::unique_ptr<Entry[]> entries_;
  std::unique_ptr<Rest[]> rests_;
  std::atomic<std::uint64_t> begun_{0};
  Instant latest_{};  // that was recorded
  std::uint64_t stamps_ = 0;
};

// --- what each short call does ------------------------------------------------------------------------------------------

inline std::uint64_t Recorder::count_of(Instant when) noexcept {
  return static_cast<std::uint64_t>(when.time_since_epoch().count());
}

// A reader relies on the order of these stores and of its own loads in read(): if it sees a new word, it also sees the version
// before it; if it sees the later version afterwards, it sees all words.
inline Recorder::Entry& Recorder::begin_entry(std::uint64_t number, const RecordedGroup& group, std::uint64_t sequence,
                                              const PlainCall& call, Times times) noexcept {
  Entry& entry = entries_[place_of(number)];
  entry.version.store(version_of(number, Phase::kBegins), std::memory_order_relaxed);
  entry.sequence.store(sequence, std::memory_order_release);
  entry.began.store(count_of(times.began), std::memory_order_release);
  entry.ended.store(count_of(times.ended), std::memory_order_release);
  entry.root_and_tag.store(std::uint64_t{static_cast<std::uint32_t>(call.root)} << 32 | call.tag,
                           std::memory_order_release);
  entry.count.store(call.count, std::memory_order_release);
  if (group.stamp == 0 || entry.group_stamp.load(std::memory_order_relaxed) != group.stamp) [[unlikely]]
    put_group(number, group);
  return entry;
}

inline std::uint64_t Recorder::publish(Entry& entry, std::uint64_t number, Phase phase) noexcept {
  entry.version.store(version_of(number, phase), std::memory_order_release);
  begun_.store(number, std::memory_order_release);
  return number;
}

inline std::uint64_t Recorder::write(const RecordedGroup& group, std::uint64_t sequence, const PlainCall& call,
                                     Times times, Phase phase) noexcept {
  const std::uint64_t number = begun_.load(std::memory_order_relaxed) + 1;
  return publish(compose(number, group, sequence, call, times), number, phase);
}

inline Recorder::Entry& Recorder::compose(std::uint64_t number, const RecordedGroup& group, std::uint64_t sequence,
                                          const PlainCall& call, Times times) noexcept {
  Entry& entry = begin_entry(number, group, sequence, call, times);
  const Head head{0, call.kind, static_cast<std::uint8_t>(call.type), static_cast<std::uint8_t>(call.op)};
  entry.head.store(std::bit_cast<std::uint64_t>(head), std::memory_order_release);
  return entry;
}

inline std::uint64_t Recorder::begin(const RecordedGroup& group, std::uint64_t sequence, const PlainCall& call,
                                     Instant now) noexcept {
  latest_ = std::max(latest_, now);
  return write(group, sequence, call, {now, {}}, Phase::kRunning);
}

inline void Recorder::end(std::uint64_t number, Code code, Instant now) noexcept {
  Entry& entry = entries_[place_of(number)];
  // The entry may have been reused, if many operations have begun since.
  if (entry.version.load(std::memory_order_relaxed) != version_of(number, Phase::kRunning)) return;
  latest_ = std::max(latest_, now);
  entry.version.store(version_of(number, Phase::kEnds), std::memory_order_relaxed);
  entry.ended.store(count_of(now), std::memory_order_release);
  if (code != Code::kOk) {
    auto head = std::bit_cast<Head>(entry.head.load(std::memory_order_relaxed));
    head.code = static_cast<std::int32_t>(code);
    entry.head.store(std::bit_cast<std::uint64_t>(head), std::memory_order_release);
  }
  entry.version.store(version_of(number, Phase::kEnded), std::memory_order_release);
}

inline void Recorder::add(const RecordedGroup& group, std::uint64_t sequence, const PlainCall& call,
                          Instant about) noexcept {
  latest_ = std::max(latest_, about);
  write(group, sequence, call, {latest_, latest_}, Phase::kEnded);
}

}  // namespace aiacc
