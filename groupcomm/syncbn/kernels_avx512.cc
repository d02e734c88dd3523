// The passes over a batch for x86 with AVX-512 and F16C.
#include <immintrin.h>

#include "groupcomm/syncbn/kernels.h"

namespace aiacc::syncbn::kernels::avx512 {
namespace {
constexpr const char* kName = "avx512";
#define AIACC_REGISTER_BYTES 64
#include "base/data/kernels_half_f16c.h"

#include "groupcomm/syncbn/kernels_body.h"  // uses the one above: the blank line keeps clang-format from sorting them

#include "groupcomm/syncbn/kernels_records.h"

#include "groupcomm/syncbn/kernels_channels.h"

#include "groupcomm/syncbn/kernels_table.h"
}  // namespace

const Table& table() noexcept { return kTable; }

}  // namespace aiacc::syncbn::kernels::avx512
