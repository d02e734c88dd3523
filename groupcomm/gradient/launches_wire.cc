// Launches on the 16-bit wire of one host: what they become when it is their turn, and what comes of their results.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/data/magnitude.h"
#include "groupcomm/gradient/launches.h"
#include "groupcomm/gradient/slots.h"

namespace aiacc::gradient {

// Powers of two follow from the last results, so every rank waits until it has these. Almost always it has: a tensor is submitted
// again only after its result. Ranks that give zeros submit nothing.
bool Launches::has_last_results(const Flight& flight) const {
  for (const auto& before : flights_) {
    if (before.get() == &flight) return true;
    for (const Part& earlier : before->parts) {
      const auto same = [&](const Part& part) { return part.index == earlier.index; };
      if (std::any_of(flight.parts.begin(), flight.parts.end(), same)) return false;
    }
  }
  return true;
}

std::deque<Launches::Queued> Launches::encode(Flight& flight, const std::string& name) {
  const bool has_scales = flight.kind.wire == DType::kBFloat16 ||
                          std::all_of(flight.parts.begin(), flight.parts.end(), [&](const Part& part) {
                            return part.bytes == 0 || scales_.exponent(part.index);
                          });
  // What brings the rest of a result is added to it, and has another size.
  if (flight.follow_up || !has_scales) return calls_of(flight, name);
  note(&flight, &Times::encoding);
  encode(flight);
  note(&flight, &Times::encoded);
  Reduction reduction;
  reduction.type = *flight.wire;
  reduction.op = flight.kind.op;
  reduction.rounds_phases = true;
  const Part& last = flight.parts.back();
  const std::size_t bytes = last.wire_at + last.bytes / sizeof(float) * size_of(reduction.type);
  return in_pieces(flight, flight.memory.data, bytes, reduction, name);
}

void Launches::encode(Flight& flight) {
  flight.wire = flight.kind.wire;
  const std::size_t element = size_of(*flight.wire);
  std::size_t bytes = 0;
  for (Part& part : flight.parts) {
    part.wire_at = bytes;
    bytes += Slots::padded(part.bytes / sizeof(float) * element);
  }
  flight.memory = memory_.take(bytes);
  for (Part& part : flight.parts) {
    const std::size_t count = part.bytes / sizeof(float), length = count * element;
    std::byte* const to = flight.memory.data + part.wire_at;
    part.exponent = flight.wire == DType::kFloat16 ? scales_.exponent(part.index).value_or(0) : 0;
    if (part.mine) {
      codec_.encode(*flight.wire, to, part.tensor->place, count, std::ldexp(flight.kind.prescale, part.exponent));
    } else {
      std::memset(to, 0, length);
    }
    std::memset(to + length, 0, Slots::padded(length) - length);  // the gap
  }
}

void Launches::land(Flight& flight) {
  if (flight.rows != nullptr) return take_rows(flight);
  if (!is_encoded_here(flight) && !looks_) return;
  for (Part& part : flight.parts) land(flight, part);
  if (!flight.wire) return;
  memory_.give(std::exchange(flight.memory, {}));
}

void Launches::land(const Flight& flight, Part& part) {
  const Kind& kind = flight.kind;
  const std::size_t count = part.bytes / size_of(kind.type);
  if (count == 0) return;
  if (!is_encoded_here(flight)) {
    part.not_finite = kind.sums() && !all_finite(kind.type, part.data, count);
    return;
  }
  std::uint32_t greatest = 0;
  if (!flight.wire) {
    greatest = greatest_magnitude(reinterpret_cast<const float*>(part.data), count);
  } else {
    const std::byte* const from = flight.memory.data + part.wire_at;
    // A launch that is brought to an end by another one is not done again: its result is not finite.
    const bool fits = flight.wire != DType::kFloat16 || scales_.fits(part.index, greatest_half(from, count));
    part.out_of_range = !fits && !part.owed;
    if (part.out_of_range) return;
    greatest = codec_.decode(*flight.wire, part.data, from, count, std::ldexp(kind.postscale, -part.exponent));
  }
  part.not_finite = greatest >= kInfinityBits;
  scales_.learn(part.index, greatest, kind.postscale);
}

}  // namespace aiacc::gradient
