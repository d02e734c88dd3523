// Reduction kernels for any processor of this architecture.
#include "base/data/kernels.h"

namespace aiacc::kernels::baseline {
namespace {
constexpr int kVectorBytes = 16;
constexpr const char* kName = "baseline";
#include "base/data/kernels_half.h"

#include "base/data/kernels_body.h"  // uses the one above: the blank line keeps clang-format from sorting them
}  // namespace

const Table& table() noexcept {
  static const Table kTable = make_table();
  return kTable;
}

}  // namespace aiacc::kernels::baseline
