#include "runtime/watch/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace aiacc {
namespace {

double ago(Instant then, Instant now) { return seconds(now > then ? now - then : Duration::zero()); }

}  // namespace

std::string Record::describe(Instant now) const {
  std::string text = call.describe();
  if (const std::string named = name.text(); !named.empty()) text += fmt::format(" '{}'", named);
  text += fmt::format(" (operation {} of {})", sequence, group.name.text());
  if (outcome.state == State::kRunning) return text + fmt::format(" has run for {:.3g} s", ago(began, now));
  return text + fmt::format(" ended {} {:.3g} s ago, after {:.3g} s",
                            outcome.code == Code::kOk ? "well" : fmt::format("with {}", code_name(outcome.code)),
                            ago(ended, now), ago(began, ended));
}

Json Record::to_json(Instant now, std::int64_t wall_ns) const {
  const auto time_of_day = [&](Instant then) { return wall_ns - (now - then).count(); };
  Json end, status;  // null while the operation runs
  if (outcome.state == State::kEnded) {
    end = time_of_day(ended);
    status = code_name(outcome.code);
  }
  return Json::Object{
      {"number", number},           {"group", group.name.text()},   {"group_id", fmt::format("{:016x}", group.id)},
      {"sequence", sequence},       {"operation", call.describe()}, {"name", name.text()},
      {"type", name_of(call.type)}, {"count", call.count},          {"began_ns", time_of_day(began)},
      {"ended_ns", std::move(end)}, {"status", std::move(status)}};
}

Recorder::Recorder() : entries_(std::make_unique<Entry[]>(kRecords)) {}

// Stores a part of a record in whole words.
template <class Part>
void Recorder::put(Entry& entry, std::size_t offset, const Part& part) noexcept {
  static_assert(sizeof(Part) % 8 == 0 && std::is_trivially_copyable_v<Part>);
  for (std::size_t i = 0; i < sizeof(Part) / 8; ++i) {
    std::uint64_t word;
    std::memcpy(&word, reinterpret_cast<const char*>(&part) + 8 * i, 8);
    entry.words[offset / 8 + i].store(word, std::memory_order_release);
  }
}

// The words of a CallSummary that differ between two plain calls; the others are in the entry.
void Recorder::put_plain(Entry& entry, const PlainCall& call) noexcept {
  if (!std::exchange(entry.plain, true)) return put(entry, offsetof(Record, call), call.call().summary());
  struct Head {
    Collective kind;
    bool uneven;
    DType type;
    ReduceOp op;
    std::uint32_t record_bytes;
  };
  struct Pair {
    std::uint32_t first, second;
  };
  constexpr std::size_t kCall = offsetof(Record, call);
  static_assert(sizeof(Head) == 16 && offsetof(CallSummary, kind) == offsetof(Head, kind) &&
                offsetof(CallSummary, type) == offsetof(Head, type) &&
                offsetof(CallSummary, op) == offsetof(Head, op) && offsetof(CallSummary, count) == sizeof(Head));
  static_assert(offsetof(CallSummary, from) == offsetof(CallSummary, root) + 4 &&
                offsetof(CallSummary, recv_tag) == offsetof(CallSummary, tag) + 4);
  put(entry, kCall, Head{call.kind, false, call.type, call.op, 0});
  put(entry, kCall + offsetof(CallSummary, count), std::uint64_t{call.count});
  put(entry, kCall + offsetof(CallSummary, root), Pair{static_cast<std::uint32_t>(call.root), 0});
  put(entry, kCall + offsetof(CallSummary, tag), Pair{call.tag, 0});
}

// A reader relies on the order of these stores and of its own loads in read(): if it sees a new word, it also sees the odd
// version before it; if it sees the even version afterwards, it sees all words. The parts are stored from where they are: a whole
// Record in between would be written and read once more.
template <class PutCall>
std::uint64_t Recorder::write(const RecordedGroup& group, std::uint64_t sequence, std::string_view name, Times times,
                              Record::State state, PutCall&& put_call) noexcept {
  const std::uint64_t number = begun_.load(std::memory_order_relaxed) + 1;
  Entry& entry = entry_of(number);
  const std::uint64_t version = entry.version.load(std::memory_order_relaxed);
  entry.version.store(version + 1, std::memory_order_relaxed);
  put(entry, offsetof(Record, number), number);
  put(entry, offsetof(Record, sequence), sequence);
  put(entry, offsetof(Record, began), times.began);
  put(entry, offsetof(Record, ended), times.ended);
  put(entry, offsetof(Record, outcome), Record::Outcome{state, Code::kOk});
  if (group.stamp == 0 || entry.group_stamp != group.stamp) put(entry, offsetof(Record, group), group);
  entry.group_stamp = group.stamp;
  if (!name.empty() || !entry.unnamed) put(entry, offsetof(Record, name), Label<24>(name));
  entry.unnamed = name.empty();
  put_call(entry);
  entry.version.store(version + 2, std::memory_order_release);
  begun_.store(number, std::memory_order_release);
  return number;
}

std::uint64_t Recorder::write(const RecordedGroup& group, std::uint64_t sequence, const Call& call,
                              std::string_view name, Times times, Record::State state) noexcept {
  return write(group, sequence, name, times, state, [&](Entry& entry) {
    if (PlainCall::describes(call)) return put_plain(entry, PlainCall::of(call));
    entry.plain = false;
    put(entry, offsetof(Record, call), call.summary());
  });
}

bool Recorder::read(const Entry& entry, Record* record) noexcept {
  std::array<std::uint64_t, kWords> words;
  const std::uint64_t version = entry.version.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < kWords; ++i) words[i] = entry.words[i].load(std::memory_order_acquire);
  if (version % 2 != 0 || entry.version.load(std::memory_order_relaxed) != version) return false;
  static_assert(std::is_trivially_copyable_v<Record>);
  std::memcpy(static_cast<void*>(record), words.data(), sizeof *record);
  return true;
}

std::uint64_t Recorder::begin(const RecordedGroup& group, std::uint64_t sequence, const Call& call,
                              std::string_view name, Instant now) noexcept {
  latest_ = std::max(latest_, now);
  return write(group, sequence, call, name, {now, {}}, Record::State::kRunning);
}

std::uint64_t Recorder::begin(const RecordedGroup& group, std::uint64_t sequence, const PlainCall& call,
                              Instant now) noexcept {
  latest_ = std::max(latest_, now);
  return write(group, sequence, {}, {now, {}}, Record::State::kRunning, [&](Entry& entry) { put_plain(entry, call); });
}

void Recorder::end(std::uint64_t number, Code code, Instant now) noexcept {
  Entry& entry = entry_of(number);
  // The entry may have been reused, if many operations have begun since.
  if (entry.words[offsetof(Record, number) / 8].load(std::memory_order_relaxed) != number) return;
  latest_ = std::max(latest_, now);
  const std::uint64_t version = entry.version.load(std::memory_order_relaxed);
  entry.version.store(version + 1, std::memory_order_relaxed);
  put(entry, offsetof(Record, ended), now);
  put(entry, offsetof(Record, outcome), Record::Outcome{Record::State::kEnded, code});
  entry.version.store(version + 2, std::memory_order_release);
}

// Does the same as begin() and end() for an operation that has already ended, with one write of the entry.
void Recorder::add(const RecordedGroup& group, std::uint64_t sequence, const Call& call, Instant about) noexcept {
  latest_ = std::max(latest_, about);
  write(group, sequence, call, {}, {latest_, latest_}, Record::State::kEnded);
}

void Recorder::add(const RecordedGroup& group, std::uint64_t sequence, const PlainCall& call, Instant about) noexcept {
  latest_ = std::max(latest_, about);
  write(group, sequence, {}, {latest_, latest_}, Record::State::kEnded, [&](Entry& entry) { put_plain(entry, call); });
}

std::vector<Record> Recorder::last(std::size_t most) const {
  std::vector<Record> records;
  const std::uint64_t begun = begun_.load(std::memory_order_acquire);
  const std::uint64_t count = std::min<std::uint64_t>({begun, most, kRecords});
  for (std::uint64_t number = begun - count + 1; number <= begun; ++number) {
    Record record;
    if (read(entry_of(number), &record) && record.number == number) records.push_back(record);
  }
  return records;
}

}  // namespace aiacc
