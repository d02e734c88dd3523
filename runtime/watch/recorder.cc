#include "runtime/watch/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>
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

Recorder::Recorder() : entries_(std::make_unique<Entry[]>(kRecords)), rests_(std::make_unique<Rest[]>(kRecords)) {}

namespace {

using Words = std::span<std::atomic<std::uint64_t>>;

template <class Part>
void put(Words words, const Part& part) noexcept {
  static_assert(sizeof(Part) % 8 == 0 && std::is_trivially_copyable_v<Part>);
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::uint64_t word;
    std::memcpy(&word, reinterpret_cast<const char*>(&part) + 8 * i, 8);
    words[i].store(word, std::memory_order_release);
  }
}

template <class Part>
Part get(Words words) noexcept {
  static_assert(sizeof(Part) % 8 == 0 && std::is_trivially_copyable_v<Part>);
  std::array<std::uint64_t, sizeof(Part) / 8> copy;
  for (std::size_t i = 0; i < words.size(); ++i) copy[i] = words[i].load(std::memory_order_acquire);
  return std::bit_cast<Part>(copy);
}

Instant instant_of(std::uint64_t count) noexcept { return Instant(Duration(static_cast<std::int64_t>(count))); }

}  // namespace

void Recorder::put_group(std::uint64_t number, const RecordedGroup& group) noexcept {
  put(rests_[place_of(number)].group, group);
  entries_[place_of(number)].group_stamp.store(group.stamp, std::memory_order_release);
}

Recorder::Entry& Recorder::compose(std::uint64_t number, const RecordedGroup& group, std::uint64_t sequence,
                                   const Call& call, std::string_view name, Times times) noexcept {
  const PlainCall plain = PlainCall::of(call);
  const bool is_plain = PlainCall::describes(call);
  if (is_plain && name.empty()) return compose(number, group, sequence, plain, times);
  Entry& entry = begin_entry(number, group, sequence, plain, times);
  Head head{0, call.kind, static_cast<std::uint8_t>(plain.type), static_cast<std::uint8_t>(plain.op)};
  head.in_rest = static_cast<std::uint8_t>((name.empty() ? 0 : kName) | (is_plain ? 0 : kCall));
  entry.head.store(std::bit_cast<std::uint64_t>(head), std::memory_order_release);
  Rest& rest = rests_[place_of(number)];
  if (!name.empty()) put(rest.name, Label<24>(name));
  if (!is_plain) put(rest.call, call.summary());
  return entry;
}

bool Recorder::read(std::uint64_t number, Record* record) const noexcept {
  const Entry& entry = entries_[place_of(number)];
  Rest& rest = rests_[place_of(number)];
  const std::uint64_t version = entry.version.load(std::memory_order_acquire);
  const auto phase = static_cast<Phase>(version & 3);
  if (version >> 2 != number || phase == Phase::kBegins || phase == Phase::kEnds) return false;
  record->number = number;
  record->sequence = entry.sequence.load(std::memory_order_acquire);
  record->began = instant_of(entry.began.load(std::memory_order_acquire));
  record->ended = instant_of(entry.ended.load(std::memory_order_acquire));
  const auto head = std::bit_cast<Head>(entry.head.load(std::memory_order_acquire));
  record->outcome = {phase == Phase::kEnded ? Record::State::kEnded : Record::State::kRunning,
                     static_cast<Code>(head.code)};
  const std::uint64_t root_and_tag = entry.root_and_tag.load(std::memory_order_acquire);
  const PlainCall plain{head.kind,
                        static_cast<DType>(head.type),
                        static_cast<ReduceOp>(head.op),
                        static_cast<std::uint32_t>(root_and_tag),
                        static_cast<std::int32_t>(root_and_tag >> 32),
                        entry.count.load(std::memory_order_acquire)};
  record->group = get<RecordedGroup>(rest.group);
  record->name = (head.in_rest & kName) != 0 ? get<Label<24>>(rest.name) : Label<24>();
  record->call = (head.in_rest & kCall) != 0 ? get<CallSummary>(rest.call) : plain.call().summary();
  return entry.version.load(std::memory_order_relaxed) == version;
}

std::uint64_t Recorder::begin(const RecordedGroup& group, std::uint64_t sequence, const Call& call,
                              std::string_view name, Instant now) noexcept {
  latest_ = std::max(latest_, now);
  const std::uint64_t number = begun_.load(std::memory_order_relaxed) + 1;
  return publish(compose(number, group, sequence, call, name, {now, {}}), number, Phase::kRunning);
}

// Does the same as begin() and end() for an operation that has already ended, with one write of the entry.
void Recorder::add(const RecordedGroup& group, std::uint64_t sequence, const Call& call, Instant about) noexcept {
  prepare(group, sequence, call, about);
  add_prepared();
}

void Recorder::prepare(const RecordedGroup& group, std::uint64_t sequence, const Call& call, Instant about) noexcept {
  latest_ = std::max(latest_, about);
  compose(begun_.load(std::memory_order_relaxed) + 1, group, sequence, call, {}, {latest_, latest_});
}

std::vector<Record> Recorder::last(std::size_t most) const {
  std::vector<Record> records;
  const std::uint64_t begun = begun_.load(std::memory_order_acquire);
  const std::uint64_t count = std::min<std::uint64_t>({begun, most, kRecords});
  for (std::uint64_t number = begun - count + 1; number <= begun; ++number) {
    Record record;
    if (read(number, &record)) records.push_back(record);
  }
  return records;
}

}  // namespace aiacc
