// The conformance suite of Compute, which compares all bits (compute_conformance.cc). The test of each implementation
// includes it.
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, ComputeConformance, ::testing::Values(&make_cpu_under_test));
//
// The payload of a sum or product of NaNs is not compared (the compiler chooses which operand's it is); everything else
// is compared exactly.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "base/data/reference_reduce.h"

namespace aiacc {

class ComputeUnderTest {
 public:
  virtual ~ComputeUnderTest() = default;
  virtual Compute& compute() = 0;
  virtual void run(Task<void> task) = 0;  // runs it to its end on the loop on which the Compute completes work
};
using MakeComputeUnderTest = std::unique_ptr<ComputeUnderTest> (*)();

namespace compute_conformance {

using Bytes = std::vector<std::byte>;

inline Task<void> reduce(Compute& compute, std::vector<Buffer> to, std::vector<Buffer> from, std::size_t count,
                         Reduction how, Compute::Step step) {
  Stop stop;
  co_await compute.reduce(to, from, count, how, step, stop);
}
inline Task<void> copy(Compute& compute, Buffer to, Buffer from) {
  Stop stop;
  co_await compute.copy(to, from, stop);
}
inline Task<void> encode_and_decode(Compute& compute, Codec codec, Buffer from, Buffer message, Buffer written,
                                    Buffer added) {
  Stop stop;
  const std::size_t count = from.bytes / sizeof(float);
  co_await compute.encode(message, from, count, codec, stop);
  co_await compute.decode(written, message, count, codec, Compute::Decoding::kWrites, stop);
  co_await compute.decode(added, message, count, codec, Compute::Decoding::kAdds, stop);
}

// Every bit pattern that is a special case of a float type, and random ones.
inline std::uint64_t element(DType type, std::mt19937_64& random) {
  static constexpr std::uint32_t kFp32[] = {0,          0x80000000, 0x7f800000, 0xff800000, 0x7fc00001, 0xffc01234,
                                            0x7f801000, 0x00000001, 0x80000001, 0x007fffff, 0x3f800000, 0xbf800000,
                                            0x477fe000, 0x477fefff, 0x477ff000, 0x33000000, 0x33000001, 0x3f808000};
  static constexpr std::uint16_t kFp16[] = {0,      0x8000, 0x7c00, 0xfc00, 0x7e01, 0xfc01, 0x0001,
                                            0x8001, 0x03ff, 0x0400, 0x7bff, 0x3c00, 0xbc01};
  const std::uint64_t word = random();
  const bool special = random() % 8 == 0;
  switch (type) {
    case DType::kFloat16:
      if (special) return kFp16[word % std::size(kFp16)];
      return word & 1 ? word & 0xffff : reference::float_to_half(static_cast<float>(word % 2000) / 256.0f - 3.0f);
    case DType::kBFloat16:
      if (special) return kFp32[word % std::size(kFp32)] >> 16;
      return word & 1 ? word & 0xffff : reference::float_to_bfloat(static_cast<float>(word % 2000) / 256.0f - 3.0f);
    case DType::kFloat32:
      if (special) return kFp32[word % std::size(kFp32)];
      return std::bit_cast<std::uint32_t>(static_cast<float>(word % 200'000) / 77.0f - 999.0f);
    case DType::kFloat64:
      if (special)
        return std::bit_cast<std::uint64_t>(static_cast<double>(std::bit_cast<float>(kFp32[word % std::size(kFp32)])));
      return std::bit_cast<std::uint64_t>(static_cast<double>(word % 200'000) / 77.0 - 999.0);
    case DType::kBool: return word % 3 == 0 ? 0 : word % 3 == 1 ? 1 : word & 0xff;
    default: return word % 5 == 0 ? word % 7 : word;
  }
}

inline Bytes elements(DType type, std::size_t count, std::mt19937_64& random) {
  Bytes bytes(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t value = element(type, random);
    std::memcpy(bytes.data() + i * size_of(type), &value, size_of(type));
  }
  return bytes;
}

// Replaces all NaNs by one, for sums and products.
inline Bytes without_payload(Bytes bytes, DType type) {
  for (std::size_t at = 0; at < bytes.size(); at += size_of(type)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, size_of(type));
    const bool nan = (type == DType::kFloat16 && (word & 0x7fff) > 0x7c00) ||
                     (type == DType::kBFloat16 && (word & 0x7fff) > 0x7f80) ||
                     (type == DType::kFloat32 && (word & 0x7fffffff) > 0x7f800000) ||
                     (type == DType::kFloat64 && (word & 0x7fffffffffffffff) > 0x7ff0000000000000);
    if (!nan) continue;
    word = ~std::uint64_t{0};
    std::memcpy(bytes.data() + at, &word, size_of(type));
  }
  return bytes;
}

// Buffers at a chosen misalignment, with guards around them.
class Arena {
 public:
  Arena(const std::vector<Bytes>& contents, std::size_t misalignment) {
    for (const Bytes& bytes : contents) {
      Bytes& place = places_.emplace_back(bytes.size() + 256, std::byte{0x5a});
      std::byte* aligned = place.data() + (64 - reinterpret_cast<std::uintptr_t>(place.data()) % 64) + misalignment;
      if (!bytes.empty()) std::memcpy(aligned, bytes.data(), bytes.size());
      buffers_.push_back({.data = aligned, .bytes = bytes.size()});
    }
  }
  const std::vector<Buffer>& buffers() const { return buffers_; }
  Bytes content(std::size_t i) const { return Bytes(buffers_[i].data, buffers_[i].data + buffers_[i].bytes); }
  bool guards_hold(std::size_t i) const {
    const Buffer& buffer = buffers_[i];
    for (const std::byte& byte : places_[i]) {
      const bool inside = &byte >= buffer.data && &byte < buffer.data + buffer.bytes;
      if (!inside && byte != std::byte{0x5a}) return false;
    }
    return true;
  }

 private:
  std::vector<Bytes> places_;
  std::vector<Buffer> buffers_;
};

}  // namespace compute_conformance

class ComputeConformance : public ::testing::TestWithParam<MakeComputeUnderTest> {
 protected:
  using Bytes = compute_conformance::Bytes;

  // Reduces `ranks` operands into `destinations` places, the first `in_place` of which are operands, and compares.
  void check(const Reduction& how, std::size_t count, int ranks, int destinations, int in_place,
             std::size_t misalignment, Compute::Step step) {
    std::vector<Bytes> inputs;
    for (int rank = 0; rank < ranks; ++rank) {
      inputs.push_back(compute_conformance::elements(how.operand_type(static_cast<std::size_t>(rank)), count, random_));
    }
    compute_conformance::Arena operands(inputs, misalignment);
    std::vector<Bytes> places;
    for (int d = 0; d < destinations; ++d) {
      places.push_back(Bytes(count * how.result_bytes(static_cast<std::size_t>(d))));
    }
    compute_conformance::Arena results(places, misalignment);
    std::vector<Buffer> to(results.buffers());
    for (int i = 0; i < in_place; ++i)
      to[static_cast<std::size_t>(i)] = operands.buffers()[static_cast<std::size_t>(i)];

    // Computed before the work, because operands may be destinations.
    std::vector<Bytes> expected(2);
    for (std::size_t d = 0; d < 2; ++d) {
      expected[d].resize(count * how.result_bytes(d));
      reference::reduce(expected[d].data(), operands.buffers(), count, how, step, d);
    }
    under_test_->run(compute_conformance::reduce(under_test_->compute(), to, operands.buffers(), count, how, step));

    const bool any_payload = how.op == ReduceOp::kSum || how.op == ReduceOp::kAvg || how.op == ReduceOp::kProd ||
                             how.prescale != 1.0 || how.postscale != 1.0;
    for (std::size_t d = 0; d < to.size(); ++d) {
      Bytes got(to[d].data, to[d].data + to[d].bytes);
      Bytes wanted = expected[std::min<std::size_t>(d, 1)];
      if (any_payload) {
        got = compute_conformance::without_payload(got, how.result_type(d));
        wanted = compute_conformance::without_payload(wanted, how.result_type(d));
      }
      ASSERT_EQ(got, wanted) << name_of(how.type) << ' ' << name_of(how.op) << ", " << count << " elements, " << ranks
                             << " operands, destination " << d << ", misaligned by " << misalignment << ", scales "
                             << how.prescale << ' ' << how.postscale;
    }
    for (std::size_t d = 0; d < results.buffers().size(); ++d) ASSERT_TRUE(results.guards_hold(d));
    for (std::size_t k = 0; k < operands.buffers().size(); ++k) ASSERT_TRUE(operands.guards_hold(k));
  }

  template <class Fn>
  void for_each_reduction(Fn&& fn) {
    for (int type = 0; type < kDTypes; ++type) {
      for (int op = 0; op < kReduceOps; ++op) {
        const Reduction how{.type = static_cast<DType>(type), .op = static_cast<ReduceOp>(op)};
        if (supports(how.op, how.type)) fn(how);
        if (HasFatalFailure()) return;
      }
    }
  }

  std::unique_ptr<ComputeUnderTest> under_test_ = GetParam()();
  std::mt19937_64 random_{20240607};
};

}  // namespace aiacc
