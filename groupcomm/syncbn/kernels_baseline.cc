// The passes over a batch for any processor of this architecture.
#include "groupcomm/syncbn/kernels.h"

namespace aiacc::syncbn::kernels::baseline {
namespace {
constexpr const char* kName = "baseline";
constexpr int kVectorBytes = 32;
#define AIACC_REGISTER_BYTES 16
#include "base/data/kernels_half.h"

#include "groupcomm/syncbn/kernels_body.h"  // uses the one above: the blank line keeps clang-format from sorting them

#include "groupcomm/syncbn/kernels_records.h"

#include "groupcomm/syncbn/kernels_channels.h"

#include "groupcomm/syncbn/kernels_table.h"
}  // namespace

const Table& table() noexcept { return kTable; }

}  // namespace aiacc::syncbn::kernels::baseline
