// Chooses the kernels for this processor, as base/data/kernels.cc does.
#include "groupcomm/syncbn/kernels.h"

#include "base/data/kernels.h"

namespace aiacc::syncbn::kernels {
namespace {

struct Found {
  const Table* table[3] = {};
  std::size_t count = 0;
};

Found find() noexcept {
  Found found;
  found.table[found.count++] = &baseline::table();
#if defined(__x86_64__)
  // The tables of base are there in the same order, each if the processor has what it needs.
  const std::size_t usable = aiacc::kernels::tables().size();
  if (usable > 1) found.table[found.count++] = &avx2::table();
  if (usable > 2) found.table[found.count++] = &avx512::table();
#endif
  return found;
}

}  // namespace

std::span<const Table* const> tables() noexcept {
  static const Found kFound = find();
  return {kFound.table, kFound.count};
}

}  // namespace aiacc::syncbn::kernels
