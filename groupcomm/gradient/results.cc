#include "groupcomm/gradient/results.h"

#include <cstring>
#include <utility>

namespace aiacc::gradient {
namespace {

// Of a tensor of this rank.
void bring_home(const Launches::Part& part) {
  std::byte* const place = part.tensor->place;
  if (part.data != place && part.bytes > 0) std::memcpy(place, part.data, part.bytes);
}

}  // namespace

bool Results::finish(const Launches::Flight& flight, Launches::Part& part) {
  if (flight.kind.is_table()) return finish_rows(flight, part);
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

// The same of a table. What it gave and its result are apart, so a result may come before the rank has submitted.
bool Results::finish_rows(const Launches::Flight& flight, Launches::Part& part) {
  const auto add = [&](Rows& to, const Rows& other) {
    to.add(flight.kind.type, flight.kind.row_elements, other.view());
  };
  if (!flight.follow_up && part.mine) {
    part.tensor->table->result = std::move(part.rows);
    part.tensor->owed = part.owed;
    return !part.owed;
  }
  if (!flight.follow_up) {
    if (part.owed) first_rows_[part.index] = std::move(part.rows);
    return false;
  }
  const auto first = first_rows_.find(part.index);
  const bool completes = part.mine || (part.tensor != nullptr && part.tensor->owed);
  if (part.mine) {
    part.tensor->table->result = std::move(part.rows);
    if (first != first_rows_.end()) add(part.tensor->table->result, first->second);
  } else if (completes) {
    add(part.tensor->table->result, part.rows);
  }
  if (first != first_rows_.end()) first_rows_.erase(first);
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
