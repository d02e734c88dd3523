#include "tools/perf/user_op.h"

#include <cstring>

#include "tools/perf/world.h"

namespace aiacc::tools {

namespace {

void compose_all(void* inout, const void* in, std::size_t records, void*) {
  auto* lower = static_cast<std::byte*>(inout);
  const auto* upper = static_cast<const std::byte*>(in);
  for (std::size_t at = 0; at < records * kRecordBytes; at += kRecordBytes) {
    std::uint64_t first = 0;
    std::uint64_t then = 0;
    std::memcpy(&first, lower + at, kRecordBytes);
    std::memcpy(&then, upper + at, kRecordBytes);
    first = composed(first, then);
    std::memcpy(lower + at, &first, kRecordBytes);
  }
}

std::uint32_t slope(std::uint64_t map) noexcept { return static_cast<std::uint32_t>(map); }
std::uint32_t offset(std::uint64_t map) noexcept { return static_cast<std::uint32_t>(map >> 32); }

}  // namespace

std::uint64_t map_of(std::uint32_t a, std::uint32_t b) noexcept { return std::uint64_t{b} << 32 | a; }

std::uint64_t composed(std::uint64_t first, std::uint64_t then) noexcept {
  return map_of(slope(first) * slope(then), offset(first) * slope(then) + offset(then));
}

UserOperator::UserOperator() {
  aiacc_op_attr_t attr{};
  attr.size = sizeof attr;
  attr.name = "affine";
  require(aiacc_op_create(&compose_all, nullptr, kRecordBytes, &attr, &handle_));
}
UserOperator::~UserOperator() { aiacc_op_free(handle_); }

}  // namespace aiacc::tools
