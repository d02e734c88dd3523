// Chooses the kernels for this processor.
#include "base/data/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace aiacc::kernels {
namespace {

struct Found {
  const Table* table[3] = {};
  std::size_t count = 0;
};

#if defined(__x86_64__)
// clang 16's __builtin_cpu_supports has no name for F16C. The caller has checked AVX2, and with it the operating
// system's support of the registers.
bool has_f16c() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

void add_wide(Found& found) noexcept {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !has_f16c()) return;
  found.table[found.count++] = &avx2::table();
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw")) return;
  if (!__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) return;
  found.table[found.count++] = &avx512::table();
}
#else
void add_wide(Found&) noexcept {}
#endif

Found find() noexcept {
  Found found;
  found.table[found.count++] = &baseline::table();
  add_wide(found);
  return found;
}

}  // namespace

std::span<const Table* const> tables() noexcept {
  static const Found kFound = find();
  return {kFound.table, kFound.count};
}

}  // namespace aiacc::kernels
