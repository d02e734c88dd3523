#include "base/sim/sim_compute.h"

#include <algorithm>

namespace aiacc::sim {

Compute::Done SimCompute::charge(std::uint64_t bytes) noexcept {
  __extension__ using Wide = unsigned __int128;
  const Duration span(static_cast<std::int64_t>(static_cast<Wide>(bytes) * 1'000'000'000 / bytes_per_second_));
  if (span == Duration{}) return Done();
  free_at_ = after(std::max(loop_.now(), free_at_), span);
  return Done(loop_, free_at_);
}

Compute::Done SimCompute::copy(Buffer destination, Buffer source) {
  if (destination.data != nullptr && source.data != nullptr) {
    (void)kernels_.copy(destination, source);  // ends inline
  }
  return charge(2 * source.bytes);
}

Compute::Done SimCompute::reduce(std::span<const Buffer> destinations, std::span<const Buffer> operands,
                                 std::size_t count, const Reduction& reduction, Step step) {
  const auto has_bytes = [](const Buffer& buffer) { return buffer.data != nullptr; };
  if (std::all_of(destinations.begin(), destinations.end(), has_bytes) &&
      std::all_of(operands.begin(), operands.end(), has_bytes)) {
    (void)kernels_.reduce(destinations, operands, count, reduction, step);
  }
  return charge(count * (destinations.size() * reduction.result_bytes() + operands.size() * reduction.element_bytes()));
}

}  // namespace aiacc::sim
