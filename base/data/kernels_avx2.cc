// Reduction kernels for x86 with AVX2 and F16C.
#include "base/data/kernels.h"
#include "base/data/kernels_stream.h"

namespace aiacc::kernels::avx2 {
namespace {
constexpr int kVectorBytes = 32;
constexpr const char* kName = "avx2";
typedef unsigned short HalfBits __attribute__((vector_size(16)));
typedef float HalfWide __attribute__((vector_size(32)));
inline HalfWide widen_half(HalfBits half) { return (HalfWide)_mm256_cvtph_ps((__m128i)half); }
inline HalfBits narrow_half(HalfWide value) {
  return (HalfBits)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
}
#include "base/data/kernels_body.h"
}  // namespace

const Table& table() noexcept {
  static const Table kTable = make_table();
  return kTable;
}

}  // namespace aiacc::kernels::avx2
