#include "groupcomm/kv/part.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/data/cpu_compute.h"

namespace aiacc::kv {
namespace {

Change some_rows(const std::vector<bool>& touched, Change change) {
  change.some = true;
  for (std::size_t row = 0; row < touched.size(); ++row) {
    if (touched[row]) change.rows.push_back(row);
  }
  return change;
}

}  // namespace

Part::Part(std::string key, const Rules& rules, const Shape& shape, std::uint64_t first, Snapshot initial,
           ServiceMemory& memory)
    : key_(std::move(key)),
      rules_(rules),
      memory_(memory),
      shape_(shape),
      first_(first),
      value_(std::move(initial)),
      workers_(static_cast<std::size_t>(rules.workers)) {}

void Part::restore(Snapshot value, UpdaterState state) noexcept {
  value_ = std::move(value);
  state_ = std::move(state);
}

void Part::take_over(const Copy& copy) {
  const Change& change = copy.change;
  for (std::size_t i = 0; i < change.workers.size(); ++i) {
    Worker& its = at(change.workers[i]);
    its.pushed = copy.progress[i].pushed;
    its.number = copy.progress[i].number;
    its.failed = change.error;
  }
  version_ = copy.version;
  state_.steps = copy.steps;
  own_value();
  const auto put = [&](std::byte* to, std::span<const std::byte> from) {
    if (from.empty()) return;
    if (!change.some) {
      std::memcpy(to, from.data(), from.size());
      return;
    }
    const std::byte* row_from = from.data();
    for (const std::uint64_t row : change.rows) {
      std::memcpy(to + static_cast<std::size_t>(row) * shape_.row_bytes(), row_from, shape_.row_bytes());
      row_from += shape_.row_bytes();
    }
  };
  put(value_->data(), copy.value);
  if (change.some && change.rows.empty()) return;  // nothing of a part, whatever its updater remembers
  for (const auto& [memory, from] : {std::pair(&state_.first, copy.first), std::pair(&state_.second, copy.second)}) {
    if (from.empty()) {
      memory->clear();  // the source's updater remembers nothing
      continue;
    }
    memory->resize(shape_.bytes());
    put(memory->data(), from);
  }
}

void Part::push(int worker, std::uint64_t id, Gradient gradient, Reading reading, const UpdaterOptions& updater,
                std::vector<Answer>& answers) {
  Worker& its = at(worker);
  const std::uint64_t after = reading.after, number = gradient.number;
  Held held{worker, id, its.pushed + 1 + after, std::move(reading)};
  if (number != 0 && number <= its.number) return push_again(std::move(held), number, answers);
  if (rules_.mode != Mode::kSync) return push_at_once(std::move(held), gradient, updater, answers);
  if (const Error* why = blocked()) return refuse(held, *why, answers);
  if (const Error* why = incomplete()) return refuse(held, *why, answers);
  if (its.given) {
    const Error why(Code::kProtocol, fmt::format("worker {} pushed {} twice in one round", worker, describe_key(key_)));
    return refuse(held, why, answers);
  }
  ++its.pushed;
  its.number = number;
  its.given = std::move(gradient);
  held_.push_back(std::move(held));
  ++given_;
  after_ = std::max(after_, after);
  finish_if_complete(updater, answers);
}

void Part::push_at_once(Held held, const Gradient& gradient, const UpdaterOptions& updater,
                        std::vector<Answer>& answers) {
  Worker& its = at(held.worker);
  its.number = gradient.number;
  its.failed.reset();
  Change change;
  change.workers = {held.worker};
  try {
    ++state_.steps;
    if (gradient.some) {
      ServiceBytes sum(shape_.bytes(), memory_);
      if (sum.size() > 0) std::memset(sum.data(), 0, sum.size());
      std::vector<bool> touched(static_cast<std::size_t>(shape_.rows));
      scatter(gradient, sum.data(), touched);
      change = some_rows(touched, std::move(change));
      apply_rows(updater, touched, sum.data());
    } else {
      apply(updater, gradient.data());
    }
  } catch (const Error& error) {
    --state_.steps;
    its.failed = change.error = error;
    changed(std::move(change));
    return refuse(held, error, answers);
  }
  ++its.pushed;
  ++version_;
  changed(std::move(change));
  held_.push_back(std::move(held));
  release(answers);
}

// Its effect is in the value already.
void Part::push_again(Held held, std::uint64_t number, std::vector<Answer>& answers) {
  const Worker& its = at(held.worker);
  if (number == its.number && its.failed) return refuse(held, *its.failed, answers);
  --held.count;
  held_.push_back(std::move(held));
  release(answers);
}

void Part::refuse(const Held& held, const Error& why, std::vector<Answer>& answers) const {
  Answer no;
  no.worker = held.worker;
  no.id = held.id;
  no.error = why;
  answers.push_back(std::move(no));
}

void Part::supply(std::span<const std::byte> sum, const UpdaterOptions& updater, std::vector<Answer>& answers) {
  if (value_.use_count() > 1) value_ = std::make_shared<Version>(sum.size(), memory_);
  if (!sum.empty()) std::memcpy(value_->data(), sum.data(), sum.size());
  ++state_.steps;
  ++version_;
  ++supplied_;
  changed({});
  release(answers);
  finish_if_complete(updater, answers);
}

void Part::finish_if_complete(const UpdaterOptions& updater, std::vector<Answer>& answers) {
  if (given_ < rules_.workers || supplied_ < after_) return;
  Change change;
  for (int worker = 0; worker < rules_.workers; ++worker) {
    change.workers.push_back(worker);
    at(worker).failed.reset();
  }
  try {
    finish_round(updater, change);
  } catch (const Error& error) {
    ++version_;
    change.error = error;
    for (Worker& worker : workers_) worker.failed = error;
    fail_waiting(error, answers);
  }
  changed(std::move(change));
  release(answers);
  if (const Error* why = blocked()) fail_waiting(*why, answers);
}

void Part::changed(Change change) {
  if (tracked_) change_ = std::move(change);
}

Part::Progress Part::progress(int worker) const noexcept {
  const Worker& its = workers_[static_cast<std::size_t>(worker)];
  if (!its.given) return {its.pushed, its.number};
  return {its.pushed - 1, its.number > 0 ? its.number - 1 : 0};
}

void Part::pull(int worker, std::uint64_t id, Reading reading, std::vector<Answer>& answers) {
  const std::uint64_t after = reading.after;
  Held held{worker, id, at(worker).pushed + after, std::move(reading)};
  if (ready(held)) return answer(held, answers);
  held_.push_back(std::move(held));
  if (const Error* why = blocked()) fail_waiting(*why, answers);
  refuse_without_pushes(answers);
}

void Part::lost(int worker, const Error& why, std::vector<Answer>& answers) {
  if (at(worker).lost) return;
  at(worker).lost = why;
  held_.remove_if([worker](const Held& held) { return held.worker == worker; });
  if (const Error* blocking = blocked()) fail_waiting(*blocking, answers);
  release(answers);  // a bounded part waits for the living only
}

void Part::done(int worker, const Error& why, std::vector<Answer>& answers) {
  at(worker).done = why;
  refuse_without_pushes(answers);
}

bool Part::needs_pushes(const Held& held) const noexcept {
  return held.count - held.reading.after > version_ - supplied_;
}

void Part::refuse_without_pushes(std::vector<Answer>& answers) {
  const Error* const why = incomplete();
  if (why == nullptr) return;
  for (const Held& held : held_) {
    if (needs_pushes(held)) refuse(held, *why, answers);
  }
  held_.remove_if([this](const Held& held) { return needs_pushes(held); });
}

const Error* Part::missing(std::optional<Error> Worker::*why) const noexcept {
  if (rules_.mode != Mode::kSync) return nullptr;
  for (const Worker& worker : workers_) {
    if (worker.*why && !worker.given) return &*(worker.*why);
  }
  return nullptr;
}

bool Part::ready(const Held& held) const noexcept {
  switch (rules_.mode) {
    case Mode::kAsync: return true;
    case Mode::kSync: return version_ >= held.count;
    case Mode::kBounded: break;
  }
  return std::all_of(workers_.begin(), workers_.end(), [&](const Worker& worker) {
    return worker.lost || worker.pushed + rules_.staleness >= held.count;
  });
}

void Part::release(std::vector<Answer>& answers) {
  for (auto held = held_.begin(); held != held_.end();) {
    if (!ready(*held)) {
      ++held;
      continue;
    }
    answer(*held, answers);
    held = held_.erase(held);
  }
}

// Those that wait for a round: they will wait for ever, or its updater has failed.
void Part::fail_waiting(const Error& why, std::vector<Answer>& answers) {
  for (const Held& held : held_) refuse(held, why, answers);
  held_.clear();
}

void Part::answer(const Held& held, std::vector<Answer>& answers) const {
  Answer yes;
  yes.worker = held.worker;
  yes.id = held.id;
  yes.row_bytes = shape_.row_bytes();
  yes.reading = held.reading;
  if (held.reading.what != Reading::What::kNothing) yes.value = value_;
  answers.push_back(std::move(yes));
}

Run Part::run(std::uint64_t first_row, std::uint64_t rows) const noexcept {
  const auto at = static_cast<std::size_t>(first_row * shape_.row_elements);
  return {key_,
          shape_.type,
          first_ + at,
          at,
          static_cast<std::size_t>(shape_.elements()),
          static_cast<std::size_t>(rows * shape_.row_elements)};
}

// Answers that were given keep what they read.
void Part::own_value() {
  if (value_.use_count() == 1) return;
  value_ = std::make_shared<Version>(value_->span(), memory_);
}

void Part::apply(const UpdaterOptions& updater, const std::byte* gradient) {
  own_value();
  update(updater, state_, run(0, shape_.rows), value_->data(), gradient);
}

void Part::apply_rows(const UpdaterOptions& updater, const std::vector<bool>& touched, const std::byte* gradient) {
  own_value();
  for (std::size_t row = 0; row < touched.size();) {
    if (!touched[row]) {
      ++row;
      continue;
    }
    std::size_t end = row;
    while (end < touched.size() && touched[end]) ++end;
    const std::size_t offset = row * shape_.row_bytes();
    update(updater, state_, run(row, end - row), value_->data() + offset, gradient + offset);
    row = end;
  }
}

void Part::scatter(const Gradient& gradient, std::byte* sum, std::vector<bool>& touched) const {
  const std::size_t bytes = shape_.row_bytes();
  if (!gradient.some) {
    std::fill(touched.begin(), touched.end(), true);
    return add_to(shape_.type, sum, gradient.data(), static_cast<std::size_t>(shape_.elements()));
  }
  const std::byte* from = gradient.data();
  for (const std::uint64_t row : gradient.rows) {
    touched[static_cast<std::size_t>(row)] = true;
    add_to(shape_.type, sum + static_cast<std::size_t>(row) * bytes, from,
           static_cast<std::size_t>(shape_.row_elements));
    from += bytes;
  }
}

// The sum of a block stays in the L1 cache until the updater has read it. A callback gets the whole part at once.
void Part::sum_dense(const UpdaterOptions& updater, const std::vector<Gradient>& gradients) {
  constexpr std::size_t kBlockBytes = 16 << 10;
  using Rule = UpdaterOptions::Kind;
  const std::size_t element = size_of(shape_.type), all = shape_.bytes() / element;
  Reduction reduction;
  reduction.type = shape_.type;
  std::vector<const std::byte*> operands(gradients.size());
  const auto add = [&](std::size_t first, std::size_t count, std::byte* sum) {
    for (std::size_t i = 0; i < gradients.size(); ++i) operands[i] = gradients[i].data() + first * element;
    const std::array<std::byte*, 1> to{sum};
    CpuCompute().reduce_now(to, operands, count, reduction, rules_.workers);
  };
  if (updater.kind == Rule::kAssign) {
    const auto sum = std::make_shared<Version>(shape_.bytes(), memory_);
    add(0, all, sum->data());
    value_ = sum;
    return;
  }
  const std::size_t most = updater.kind == Rule::kCallback ? all : kBlockBytes / element;
  ServiceBytes sum(std::min(all, most) * element, memory_);
  own_value();
  for (std::size_t first = 0; first < all; first += most) {
    Run block = run(0, shape_.rows);
    block.first += first;
    block.at = first;
    block.count = std::min(most, all - first);
    add(first, block.count, sum.data());
    update(updater, state_, block, value_->data() + first * element, sum.data());
  }
}

void Part::finish_round(const UpdaterOptions& updater, Change& change) {
  given_ = 0;
  std::vector<Gradient> gradients;
  bool some = false;
  for (Worker& worker : workers_) {
    some = some || worker.given->some;
    gradients.push_back(std::move(*worker.given));
    worker.given.reset();
  }
  ++state_.steps;
  if (some) {
    ServiceBytes sum(shape_.bytes(), memory_);
    if (sum.size() > 0) std::memset(sum.data(), 0, sum.size());
    std::vector<bool> touched(static_cast<std::size_t>(shape_.rows));
    for (const Gradient& gradient : gradients) scatter(gradient, sum.data(), touched);
    change = some_rows(touched, std::move(change));
    apply_rows(updater, touched, sum.data());
  } else if (shape_.bytes() > 0) {
    sum_dense(updater, gradients);
  }
  ++version_;
}

}  // namespace aiacc::kv
