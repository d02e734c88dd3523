// Recorder: a flight recorder of the last operations of a context. It is always on: when a job hangs or fails, the last
// operations of each rank say more than the error of the rank that noticed (PyTorch's Flight Recorder and NCCL's RAS
// serve the same purpose).
//
// A ring of fixed size. The thread that drives the lane writes it with a few plain stores for each operation, without
// allocation or lock. Any thread may read it concurrently: an entry has a version, which is odd during a write, and a
// copy made across two versions is discarded (a seqlock).
#pragma once

#include <array>
#include <atomic>
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

// One recorded operation. Each member is a whole number of 64-bit words.
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
  // For a group that begins.
  std::uint64_t stamp() noexcept { return ++stamps_; }

  // --- any thread ------------------------------------------------------------------------------------------------------
  // The last of them, at most so many, the oldest first. One that is being written at this moment is left out.
  std::vector<Record> last(std::size_t most = kRecords) const;

 private:
  static constexpr std::size_t kWords = sizeof(Record) / 8;
  static_assert(sizeof(Record) % 8 == 0);
  struct Entry {
    std::atomic<std::uint64_t> version{0};
    std::array<std::atomic<std::uint64_t>, kWords> words{};
    // What they hold, for the thread that writes: of most calls the entry's last one had the same group, no name, and nothing but
    // what a PlainCall says, and then only what differs is stored.
    std::uint64_t group_stamp = 0;
    bool unnamed = false;
    bool plain = false;
  };
  Entry& entry_of(std::uint64_t number) const noexcept { return entries_[number % kRecords]; }
  struct Times {
    Instant began{};
    Instant ended{};
  };
  template <class PutCall>
  std::uint64_t write(const RecordedGroup& group, std::uint64_t sequence, std::string_view name, Times times,
                      Record::State state, PutCall&& put_call) noexcept;
  std::uint64_t write(const RecordedGroup& group, std::uint64_t sequence, const Call& call, std::string_view name,
                      Times times, Record::State state) noexcept;
  static void put_plain(Entry& entry, const PlainCall& call) noexcept;
  template <class Part>
  static void put(Entry& entry, std::size_t offset, const Part& part) noexcept;
  static bool read(const Entry& entry, Record* record) noexcept;

  std::unique_ptr<Entry[]> entries_;
  std::atomic<std::uint64_t> begun_{0};
  Instant latest_{};  // that was recorded
  std::uint64_t stamps_ = 0;
};

}  // namespace aiacc
