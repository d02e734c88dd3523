// DeferredWork: a copy, reduction, encoding or decoding that a Compute performs later, with the CPU's kernels.
#pragma once

#include <algorithm>
#include <vector>

#include "base/data/cpu_compute.h"

namespace aiacc::sim {

struct DeferredWork {
  std::vector<Buffer> destinations;
  std::vector<Buffer> operands;
  std::size_t count = 0;  // elements; of a copy 0
  Reduction reduction;
  Compute::Step step;
  enum class What : std::uint8_t { kCopy, kReduce, kEncode, kDecode } what = What::kCopy;
  Codec codec = Codec::kNone;
  Compute::Decoding decoding = Compute::Decoding::kWrites;

  void set_copy(Buffer destination, Buffer source) { set(What::kCopy, destination, source); }
  void set_encoding(Buffer message, Buffer elements, std::size_t number, Codec how) {
    set(What::kEncode, message, elements);
    count = number;
    codec = how;
  }
  void set_decoding(Buffer elements, Buffer message, std::size_t number, Codec how, Compute::Decoding adds) {
    set(What::kDecode, elements, message);
    count = number;
    codec = how;
    decoding = adds;
  }
  void set_reduction(std::span<const Buffer> to, std::span<const Buffer> from, std::size_t elements,
                     const Reduction& how, Compute::Step which) {
    destinations.assign(to.begin(), to.end());
    operands.assign(from.begin(), from.end());
    count = elements;
    reduction = how;
    step = which;
    what = What::kReduce;
  }
  // False in byte-free simulation.
  bool has_bytes() const noexcept {
    const auto there = [](const Buffer& buffer) { return buffer.data != nullptr; };
    return std::all_of(destinations.begin(), destinations.end(), there) &&
           std::all_of(operands.begin(), operands.end(), there);
  }
  void perform(const CpuCompute& cpu) const {
    switch (what) {
      case What::kCopy: return cpu.copy_now(destinations[0], operands[0]);
      case What::kReduce: return cpu.reduce_now(destinations, operands, count, reduction, step);
      case What::kEncode: return cpu.encode_now(destinations[0], operands[0], count, codec);
      case What::kDecode: return cpu.decode_now(destinations[0], operands[0], count, codec, decoding);
    }
  }

 private:
  void set(What kind, Buffer destination, Buffer source) {
    destinations.assign(1, destination);
    operands.assign(1, source);
    what = kind;
  }
};

}  // namespace aiacc::sim
