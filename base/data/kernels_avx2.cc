// Reduction kernels for x86 with AVX2 and F16C.
#include <immintrin.h>

#include <cstddef>

#include "base/data/kernels.h"

namespace aiacc::kernels::avx2 {
namespace {
constexpr int kVectorBytes = 32;
constexpr const char* kName = "avx2";
#include "base/data/kernels_half_f16c.h"

#include "base/data/kernels_body.h"  // uses the one above: the blank line keeps clang-format from sorting them
}  // namespace

const Table& table() noexcept {
  static const Table kTable = make_table();
  return kTable;
}

}  // namespace aiacc::kernels::avx2
