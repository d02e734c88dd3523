// Reduction kernels for x86 with AVX-512 F, BW, DQ and VL.
#include <immintrin.h>

#include <cstddef>

#include "base/data/kernels.h"

namespace aiacc::kernels::avx512 {
namespace {
constexpr int kVectorBytes = 64;
constexpr const char* kName = "avx512";
typedef unsigned short HalfBits __attribute__((vector_size(32)));
typedef float HalfWide __attribute__((vector_size(64)));
inline HalfWide widen_half(HalfBits half) { return (HalfWide)_mm512_maskz_cvtph_ps(0xffff, (__m256i)half); }
inline HalfBits narrow_half(HalfWide value) {
  return (HalfBits)_mm512_maskz_cvtps_ph(0xffff, (__m512)value, _MM_FROUND_TO_NEAREST_INT);
}
#include "base/data/kernels_body.h"
}  // namespace

const Table& table() noexcept {
  static const Table kTable = make_table();
  return kTable;
}

}  // namespace aiacc::kernels::avx512
