#include "base/data/cpu_compute.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/data/codec.h"
#include "base/data/user_reduce.h"
#include "base/error.h"

namespace aiacc {
namespace {

// The pointers of a span of buffers; on the stack for the usual number of ranks of a host.
class Pointers {
 public:
  Pointers(std::span<const Buffer> buffers, std::size_t bytes) : count_(buffers.size()) {
    if (count_ > inline_.size()) heap_.resize(count_);
    for (std::size_t i = 0; i < count_; ++i) {
      AIACC_INVARIANT(buffers[i].on_host(), "the CPU reads and writes host memory");
      AIACC_INVARIANT(buffers[i].bytes >= bytes, "a buffer is shorter than the elements to reduce");
      data()[i] = buffers[i].data;
    }
  }
  std::byte** data() noexcept { return heap_.empty() ? inline_.data() : heap_.data(); }
  std::size_t size() const noexcept { return count_; }

 private:
  std::size_t count_;
  std::array<std::byte*, 32> inline_;
  std::vector<std::byte*> heap_;
};

void fill_scales(kernels::Job& job, const Reduction& reduction, Compute::Step step) noexcept {
  if (step.first) job.prescale = reduction.prescale;
  if (!step.last) return;
  if (reduction.op == ReduceOp::kAvg) job.divisor = step.ranks;
  job.postscale = reduction.postscale;
}

bool all_are(DType type, std::size_t count, const ElementTypes& types, DType own) noexcept {
  return types.of(0).in(own) == type && (count < 2 || types.of(1).in(own) == type);
}

// The kernel for one pass, in which all operands have one type and all results have one type; null if there is none.
kernels::Function kernel_of_types(const kernels::Table& kernels, const Reduction& how, std::size_t results,
                                  std::size_t operands) noexcept {
  const DType in = how.operand_type(0), out = how.result_type(0), wide = how.accumulate_type();
  if (!all_are(in, operands, how.operands, how.type) || !all_are(out, results, how.results, how.type)) return nullptr;
  if (in == out) return kernels.of(in, how.op);
  if (out == wide) return kernels.widening(in, how.op);
  if (in == wide) return kernels.narrowing(out, how.op);
  return nullptr;
}

}  // namespace

ScratchPool& Compute::scratch(const Buffer& like) {
  if (like.on_host()) return host_scratch_;
  throw Error(Code::kUnsupported,
              fmt::format("a buffer is memory of device {}, which this build cannot reach: pass memory of the host",
                          like.device));
}

Compute::Done CpuCompute::copy(Buffer destination, Buffer source, Stop&) {
  copy_now(destination, source);
  return {};
}

Compute::Done CpuCompute::reduce(std::span<const Buffer> destinations, std::span<const Buffer> operands,
                                 std::size_t count, const Reduction& reduction, Step step, Stop&) {
  reduce_now(destinations, operands, count, reduction, step);
  return {};
}

Compute::Done CpuCompute::encode(Buffer message, Buffer elements, std::size_t count, Codec codec, Stop&) {
  encode_now(message, elements, count, codec);
  return {};
}

Compute::Done CpuCompute::decode(Buffer elements, Buffer message, std::size_t count, Codec codec, Decoding how, Stop&) {
  decode_now(elements, message, count, codec, how);
  return {};
}

void CpuCompute::encode_now(Buffer message, Buffer elements, std::size_t count, Codec codec) const {
  AIACC_INVARIANT(message.on_host() && elements.on_host(), "the CPU reads and writes host memory");
  AIACC_INVARIANT(elements.bytes == count * sizeof(float), "elements with a codec are fp32");
  aiacc::encode(*this, codec, {message.data, message.bytes}, elements.data, count);
}

void CpuCompute::decode_now(Buffer elements, Buffer message, std::size_t count, Codec codec, Decoding how) const {
  AIACC_INVARIANT(message.on_host() && elements.on_host(), "the CPU reads and writes host memory");
  AIACC_INVARIANT(elements.bytes == count * sizeof(float), "elements with a codec are fp32");
  aiacc::decode(*this, codec, elements.data, {message.data, message.bytes}, count, how == Decoding::kAdds);
}

void CpuCompute::copy_now(Buffer destination, Buffer source) const {
  AIACC_INVARIANT(destination.bytes == source.bytes, "a copy's ends have the same length");
  AIACC_INVARIANT(destination.on_host() && source.on_host(), "the CPU reads and writes host memory");
  copy_now(destination.data, source.data, source.bytes);
}

void CpuCompute::reduce_now(std::span<const Buffer> destinations, std::span<const Buffer> operands, std::size_t count,
                            const Reduction& reduction, Step step) const {
  if (count == 0) return;
  AIACC_INVARIANT(!operands.empty(), "nothing to reduce");
  kernels::Function kernel = nullptr;
  if (reduction.operands.named() || reduction.results.named()) {
    kernel = kernel_of_types(kernels_, reduction, destinations.size(), operands.size());
    if (kernel == nullptr) return reduce_mixed(destinations, operands, count, reduction, step);
  }
  Pointers to(destinations, count * reduction.result_bytes());
  Pointers from(operands, count * reduction.element_bytes());
  if (reduction.user != nullptr) {
    reduce_by_user({to.data(), to.size()}, {from.data(), from.size()}, count, *reduction.user);
    return;
  }
  if (kernel == nullptr) kernel = kernels_.of(reduction.type, reduction.op);
  AIACC_INVARIANT(kernel != nullptr, "the operator is not defined for the type");
  kernels::Job job;
  job.destinations = to.data();
  job.destination_count = to.size();
  job.operands = from.data();
  job.operand_count = from.size();
  job.count = count;
  fill_scales(job, reduction, step);
  kernel(job);
}

// Converts block by block to fp32 in memory that stays in the cache, sums with the fp32 kernel, and converts the
// results to their types. The bits of the sum do not depend on the types of the operands in memory.
void CpuCompute::reduce_mixed(std::span<const Buffer> destinations, std::span<const Buffer> operands, std::size_t count,
                              const Reduction& reduction, Step step) const {
  AIACC_INVARIANT(reduction.mixes(), "only what accumulates in fp32 mixes element types");
  const auto at = [count](const Buffer& buffer, DType type) {
    AIACC_INVARIANT(buffer.on_host(), "the CPU reads and writes host memory");
    AIACC_INVARIANT(buffer.bytes >= count * size_of(type), "a buffer is shorter than the elements to reduce");
    return buffer.data;
  };
  constexpr std::size_t kBlock = 1024;  // elements
  constexpr std::size_t kFloat = sizeof(float);
  std::vector<std::byte> memory(kBlock * kFloat * (operands.size() + 1));
  std::byte* const sum = memory.data();
  std::vector<const std::byte*> wide(operands.size());
  const auto convert = [](kernels::Function kernel, std::byte* to, const std::byte* from, std::size_t elements) {
    kernels::Job job;
    job.destinations = &to;
    job.destination_count = 1;
    job.operands = &from;
    job.operand_count = 1;
    job.count = elements;
    kernel(job);
  };
  for (std::size_t done = 0; done < count; done += kBlock) {
    const std::size_t now = std::min(kBlock, count - done);
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const DType type = reduction.operand_type(k);
      wide[k] = at(operands[k], type) + done * size_of(type);
      if (type == DType::kFloat32) continue;
      std::byte* const block = sum + (k + 1) * kBlock * kFloat;
      convert(kernels_.widening(type, ReduceOp::kSum), block, wide[k], now);
      wide[k] = block;
    }
    kernels::Job job;
    job.destinations = &sum;
    job.destination_count = 1;
    job.operands = wide.data();
    job.operand_count = wide.size();
    job.count = now;
    fill_scales(job, reduction, step);
    kernels_.of(DType::kFloat32, reduction.op)(job);
    for (std::size_t d = 0; d < destinations.size(); ++d) {
      const DType type = reduction.result_type(d);
      std::byte* const to = at(destinations[d], type) + done * size_of(type);
      if (type == DType::kFloat32) {
        copy_now(to, sum, now * kFloat);
      } else {
        convert(kernels_.narrowing(type, ReduceOp::kSum), to, sum, now);
      }
    }
  }
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
