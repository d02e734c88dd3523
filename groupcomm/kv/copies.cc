#include "groupcomm/kv/copies.h"

#include <fmt/format.h>

#include <cstring>
#include <iterator>
#include <string>

#include "groupcomm/kv/messages.h"

namespace aiacc::kv {
namespace {

// Appends to a message whose length is known.
class Appender {
 public:
  explicit Appender(std::byte* to) noexcept : to_(to) {}
  void add(const void* from, std::size_t bytes) noexcept {
    if (bytes > 0) std::memcpy(to_, from, bytes);
    to_ += bytes;
  }
  void add_key(std::string_view key) noexcept {
    add(key.data(), key.size());
    std::memset(to_, 0, padded(key.size()) - key.size());
    to_ += padded(key.size()) - key.size();
  }
  // All of `memory`, or the rows of the change.
  void add_rows(const std::byte* memory, std::size_t bytes, const Change& change, std::size_t row_bytes) noexcept {
    if (!change.some) return add(memory, bytes);
    for (const std::uint64_t row : change.rows) add(memory + static_cast<std::size_t>(row) * row_bytes, row_bytes);
  }

 private:
  std::byte* to_;
};

[[noreturn]] void malformed_copy(std::size_t bytes) {
  throw Error(Code::kProtocol, fmt::format("{} bytes are no copy of a part of a key-value store", bytes));
}

class Taker {
 public:
  explicit Taker(std::span<const std::byte> payload) noexcept : left_(payload), all_(payload.size()) {}
  std::span<const std::byte> next(std::uint64_t bytes) {
    if (bytes > left_.size()) malformed_copy(all_);
    const auto part = left_.first(static_cast<std::size_t>(bytes));
    left_ = left_.subspan(part.size());
    return part;
  }
  template <class T>
  std::vector<T> numbers(std::uint64_t count) {
    if (count > left_.size()) malformed_copy(all_);
    const auto bytes = next(count * sizeof(T));
    std::vector<T> read(static_cast<std::size_t>(count));
    if (!bytes.empty()) std::memcpy(read.data(), bytes.data(), bytes.size());
    return read;
  }

 private:
  std::span<const std::byte> left_;
  std::size_t all_;
};

}  // namespace

ServiceBytes copy_of_part(int server, std::string_view key, std::uint32_t number, Part& part, Change change,
                          ServiceMemory& memory) {
  const Shape& shape = part.shape();
  const UpdaterState& state = part.state();
  const std::size_t row_bytes = shape.row_bytes();
  if (change.some &&
      change.rows.size() * (row_bytes + sizeof(std::uint64_t)) >= shape.bytes()) {  // all of it is shorter
    change.some = false;
    change.rows.clear();
  }
  const auto size_for = [&](std::size_t bytes) {
    return change.some && bytes > 0 ? change.rows.size() * row_bytes : bytes;
  };
  const std::string text = change.error ? change.error->message() : std::string();
  CopyHead head;
  head.server = server;
  head.type = static_cast<std::int32_t>(shape.type);
  head.key_bytes = static_cast<std::uint32_t>(key.size());
  head.part = number;
  head.some = change.some ? 1 : 0;
  head.code = change.error ? static_cast<std::int32_t>(change.error->code()) : 0;
  head.text_bytes = static_cast<std::uint32_t>(text.size());
  head.rows = shape.rows;
  head.row_elements = shape.row_elements;
  head.first = part.first();
  head.version = part.version();
  head.steps = state.steps;
  head.workers = change.workers.size();
  head.some_rows = change.rows.size();
  head.value_bytes = size_for(part.value()->size());
  head.first_bytes = size_for(state.first.size());
  head.second_bytes = size_for(state.second.size());
  ServiceBytes bytes(sizeof head + padded(key.size()) + change.workers.size() * sizeof(CopyProgress) +
                         change.rows.size() * sizeof(std::uint64_t) + head.value_bytes + head.first_bytes +
                         head.second_bytes + text.size(),
                     memory);
  Appender to(bytes.data());
  to.add(&head, sizeof head);
  to.add_key(key);
  for (const int worker : change.workers) {
    const Part::Progress progress = part.progress(worker);
    const CopyProgress its{static_cast<std::uint64_t>(worker), progress.pushed, progress.number};
    to.add(&its, sizeof its);
  }
  to.add(change.rows.data(), change.rows.size() * sizeof(std::uint64_t));
  to.add_rows(part.value()->data(), head.value_bytes, change, row_bytes);
  if (head.first_bytes > 0) to.add_rows(state.first.data(), head.first_bytes, change, row_bytes);
  if (head.second_bytes > 0) to.add_rows(state.second.data(), head.second_bytes, change, row_bytes);
  to.add(text.data(), text.size());
  return bytes;
}

ServiceBytes copy_of_whole_part(int server, std::string_view key, std::uint32_t number, Part& part,
                                ServiceMemory& memory) {
  Change all;
  for (int worker = 0; worker < part.workers(); ++worker) all.workers.push_back(worker);
  return copy_of_part(server, key, number, part, std::move(all), memory);
}

ServiceBytes copy_that_completes(int server) {
  CopyHead head;
  head.server = server;
  head.defines = static_cast<std::uint32_t>(CopyOf::kComplete);
  ServiceBytes bytes(sizeof head);
  std::memcpy(bytes.data(), &head, sizeof head);
  return bytes;
}

ServiceBytes copy_of_shape(int server, std::string_view key, const Shape& shape) {
  CopyHead head;
  head.server = server;
  head.type = static_cast<std::int32_t>(shape.type);
  head.key_bytes = static_cast<std::uint32_t>(key.size());
  head.defines = static_cast<std::uint32_t>(CopyOf::kShape);
  head.rows = shape.rows;
  head.row_elements = shape.row_elements;
  ServiceBytes bytes(sizeof head + padded(key.size()));
  Appender to(bytes.data());
  to.add(&head, sizeof head);
  to.add_key(key);
  return bytes;
}

CopyView::CopyView(std::span<const std::byte> payload, int workers) {
  Taker from(payload);
  std::memcpy(&head, from.next(sizeof head).data(), sizeof head);
  const auto text = from.next(head.key_bytes);
  key = {reinterpret_cast<const char*>(text.data()), text.size()};
  static_cast<void>(from.next(padded(text.size()) - text.size()));
  if (head.defines == static_cast<std::uint32_t>(CopyOf::kComplete)) return;
  if (head.type < 0 || head.type >= kDTypes || key.empty()) malformed_copy(payload.size());
  for (const CopyProgress& its : from.numbers<CopyProgress>(head.workers)) {
    if (its.worker >= static_cast<std::uint64_t>(workers)) malformed_copy(payload.size());
    copy.change.workers.push_back(static_cast<int>(its.worker));
    copy.progress.push_back({its.pushed, its.number});
  }
  copy.change.some = head.some != 0;
  copy.change.rows = from.numbers<std::uint64_t>(head.some_rows);
  copy.version = head.version;
  copy.steps = head.steps;
  copy.value = from.next(head.value_bytes);
  copy.first = from.next(head.first_bytes);
  copy.second = from.next(head.second_bytes);
  const auto sentence = from.next(head.text_bytes);
  if (head.code != 0) {
    copy.change.error.emplace(static_cast<Code>(head.code),
                              std::string(reinterpret_cast<const char*>(sentence.data()), sentence.size()));
  }
  if (head.defines != 0) return;
  const Shape shape = head.shape();
  const std::size_t wanted = copy.change.some ? copy.change.rows.size() * shape.row_bytes() : shape.bytes();
  for (const std::uint64_t row : copy.change.rows) {
    if (row >= shape.rows) malformed_copy(payload.size());
  }
  if (copy.value.size() != wanted || (!copy.first.empty() && copy.first.size() != wanted) ||
      (!copy.second.empty() && copy.second.size() != wanted)) {
    malformed_copy(payload.size());
  }
}

std::uint64_t Copies::add(ServiceBytes copy) {
  fresh_.push_back({++last_, std::move(copy)});
  return last_;
}

void Copies::answer(std::uint64_t number, std::vector<Answer> fresh, std::vector<Answer>& answers) {
  if (fresh.empty()) return;
  std::vector<Answer>& to = on_ && number > confirmed_ ? waiting_[number] : answers;
  std::move(fresh.begin(), fresh.end(), std::back_inserter(to));
}

void Copies::confirmed(std::uint64_t number, std::vector<Answer>& answers) {
  if (number > confirmed_) confirmed_ = number;
  while (!waiting_.empty() && waiting_.begin()->first <= confirmed_) {
    std::vector<Answer> due = std::move(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
    std::move(due.begin(), due.end(), std::back_inserter(answers));
  }
}

void Copies::restart(bool on, std::vector<Answer>& answers) {
  on_ = on;
  fresh_.clear();
  confirmed(last_, answers);
}

}  // namespace aiacc::kv
