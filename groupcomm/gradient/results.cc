#include "groupcomm/gradient/results.h"

#include <cstring>

namespace aiacc::gradient {
namespace {

// Of a tensor of this rank.
void bring_home(const Launches::Part& part) {
  std::byte* const place = part.tensor->place;
  if (part.data != place && part.bytes > 0) std::memcpy(place, part.data, part.bytes);
}

}  // namespace

bool Results::finish(const Launches::Flight& flight, const Launches::Part& part) {
  if (!flight.follow_up && part.mine) {
    bring_home(part);
    part.tensor->owed = part.owed;
    return !part.owed;
  }
  if (!flight.follow_up) {
    if (part.owed) first_[part.index].assign(part.data, part.data + part.bytes);
    return false;
  }
  const auto first = first_.find(part.index);
  const bool completes = part.mine || (part.tensor != nullptr && part.tensor->owed);
  if (part.mine) {
    bring_home(part);
    if (first != first_.end()) add_up(flight.kind, part.tensor->place, first->second.data(), part.bytes);
  } else if (completes) {
    add_up(flight.kind, part.tensor->place, part.data, part.bytes);
  }
  if (first != first_.end()) first_.erase(first);
  return completes;
}

void Results::add_up(const Kind& kind, std::byte* into, const std::byte* other, std::size_t bytes) {
  if (bytes == 0) return;
  Reduction sum;
  sum.type = kind.type;
  std::byte* const destinations[] = {into};
  const std::byte* const operands[] = {into, other};
  sums_.reduce_now(destinations, operands, bytes / size_of(kind.type), sum, 1);
}

}  // namespace aiacc::gradient
