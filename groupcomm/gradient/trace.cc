#include "groupcomm/gradient/trace.h"

#include <fmt/format.h>

namespace aiacc::gradient {

Timeline::Row EngineTrace::row_of(Inbox::Tensor& tensor) {
  if (rows_.size() <= tensor.number) rows_.resize(tensor.number + 1, kNoRow);
  Timeline::Row& row = rows_[tensor.number];
  if (row == kNoRow) row = timeline_.row(engine_.empty() ? tensor.name : fmt::format("{}: {}", engine_, tensor.name));
  return row;
}

Timeline::Row EngineTrace::own_row() {
  if (own_ == kNoRow) own_ = timeline_.row(engine_.empty() ? "negotiation" : fmt::format("{}: negotiation", engine_));
  return own_;
}

void EngineTrace::contribute(const std::vector<Inbox::Tensor*>& tensors) noexcept {
  round_began_ = loop_.now();
  for (Inbox::Tensor* tensor : tensors) {
    if (tensor->pending && tensor->submitted != Instant{} && tensor->negotiating == Instant{})
      tensor->negotiating = round_began_;
  }
}

void EngineTrace::round_ended(std::uint64_t round) {
  if (!timeline_.on() || round_began_ == Instant{}) return;
  const TimelineNames& names = timeline_.names();
  const auto number = static_cast<std::int64_t>(round);
  timeline_.span(own_row(), names.round, round_began_, loop_.now(), number);
  if (names.round_begins != nullptr) timeline_.mark(own_row(), names.round_begins, round_began_, number);
  round_began_ = {};
}

void EngineTrace::launched(Launches::Flight& flight) noexcept {
  for (Launches::Part& part : flight.parts) {
    if (!part.mine || part.tensor->submitted == Instant{}) continue;
    flight.times.launched = loop_.now();
    part.times = {part.tensor->submitted, part.tensor->packed, part.tensor->negotiating};
  }
}

void EngineTrace::ended(Launches::Flight& flight) {
  const Launches::Times& times = flight.times;
  if (times.launched == Instant{} || !timeline_.on()) return;
  const TimelineNames& names = timeline_.names();
  const Instant now = loop_.now();
  const Instant begun = times.encoding != Instant{} ? times.encoding : times.began;
  for (const Launches::Part& part : flight.parts) {
    const auto& [submitted, packed, negotiating] = part.times;
    if (submitted == Instant{}) continue;
    const Timeline::Row row = row_of(*part.tensor);
    span(row, names.pack, submitted, packed);
    span(row, names.wait, packed, negotiating == Instant{} ? times.launched : negotiating);
    if (negotiating != Instant{}) span(row, names.negotiate, negotiating, times.launched);
    if (begun == Instant{}) continue;  // nothing to reduce
    span(row, names.queue, times.launched, begun);
    if (times.encoding != Instant{}) span(row, names.pack, times.encoding, times.encoded);
    span(row, names.reduce, times.began, times.ended);
    if (flight.wire || part.copied_out) span(row, names.unpack, times.landing, now);
  }
}

void EngineTrace::flushed() {
  if (!unmarked_) return;
  unmarked_ = false;
  ++steps_;
  if (timeline_.on()) timeline_.mark(own_row(), "step ends", loop_.now(), steps_);
}

}  // namespace aiacc::gradient
