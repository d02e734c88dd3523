#include "base/data/cpu_compute.h"

#include <array>
#include <cstring>
#include <vector>

#include "base/data/user_reduce.h"
#include "base/error.h"

namespace aiacc {
namespace {

// Pointers of a span of buffers; on the stack for as many ranks as a host usually has.
class Pointers {
 public:
  Pointers(std::span<const Buffer> buffers, std::size_t bytes) : count_(buffers.size()) {
    if (count_ > near_.size()) far_.resize(count_);
    for (std::size_t i = 0; i < count_; ++i) {
      AIACC_INVARIANT(buffers[i].kind == MemoryKind::kHost, "the CPU reads and writes host memory");
      AIACC_INVARIANT(buffers[i].bytes >= bytes, "a buffer is shorter than the elements to reduce");
      data()[i] = buffers[i].data;
    }
  }
  std::byte** data() noexcept { return far_.empty() ? near_.data() : far_.data(); }
  std::size_t size() const noexcept { return count_; }

 private:
  std::size_t count_;
  std::array<std::byte*, 32> near_;
  std::vector<std::byte*> far_;
};

void fill_scales(kernels::Job& job, const Reduction& reduction, Compute::Step step) noexcept {
  if (step.first) job.prescale = reduction.prescale;
  if (!step.last) return;
  if (reduction.op == ReduceOp::kAvg) job.divisor = step.ranks;
  job.postscale = reduction.postscale;
}

}  // namespace

Compute::Done CpuCompute::copy(Buffer destination, Buffer source) {
  AIACC_INVARIANT(destination.bytes == source.bytes, "a copy's ends have the same length");
  if (source.bytes > 0) std::memcpy(destination.data, source.data, source.bytes);
  return {};
}

Compute::Done CpuCompute::copy_for_others(Buffer destination, Buffer source) {
  AIACC_INVARIANT(destination.bytes == source.bytes, "a copy's ends have the same length");
  if (source.bytes == 0) return {};
  const std::byte* from = source.data;
  kernels::Job job;
  job.destinations = &destination.data;
  job.destination_count = 1;
  job.streamed = 1;
  job.operands = &from;
  job.operand_count = 1;
  job.count = source.bytes;
  kernels_.of(DType::kUInt8, ReduceOp::kBitOr)(job);  // of one operand: a copy
  return {};
}

Compute::Done CpuCompute::reduce(std::span<const Buffer> destinations, std::span<const Buffer> operands,
                                 std::size_t count, const Reduction& reduction, Step step) {
  if (count == 0) return {};
  AIACC_INVARIANT(!operands.empty(), "nothing to reduce");
  Pointers to(destinations, count * reduction.result_bytes());
  Pointers from(operands, count * reduction.element_bytes());
  if (reduction.user != nullptr) {
    reduce_by_user({to.data(), to.size()}, {from.data(), from.size()}, count, *reduction.user);
    return {};
  }
  const kernels::Function kernel = kernels_.of(reduction.type, reduction.op, reduction.partial);
  AIACC_INVARIANT(kernel != nullptr, "the operator is not defined for the type");
  kernels::Job job;
  job.destinations = to.data();
  job.destination_count = to.size();
  job.streamed = static_cast<std::size_t>(step.for_others);
  job.operands = from.data();
  job.operand_count = from.size();
  job.count = count;
  fill_scales(job, reduction, step);
  kernel(job);
  return {};
}

void CpuCompute::reduce_now(std::span<std::byte* const> destinations, std::span<const std::byte* const> operands,
                            std::size_t count, const Reduction& reduction, int ranks) const noexcept {
  if (reduction.user != nullptr) [[unlikely]]
    return reduce_by_user(destinations, operands, count, *reduction.user);
  kernels::Job job;
  job.destinations = destinations.data();
  job.destination_count = destinations.size();
  job.operands = operands.data();
  job.operand_count = operands.size();
  job.count = count;
  fill_scales(job, reduction, {.first = true, .last = true, .ranks = ranks});
  kernels_.of(reduction.type, reduction.op)(job);
}

}  // namespace aiacc
