// The operator of -o user: the composition of the maps x -> a x + b on 32-bit numbers, lower ranks applied first. Associative,
// does not commute, exact, so that what is compared also says whether the order of ranks was kept.
#pragma once

#include <cstdint>

#include "include/aiacc/aiacc.h"

namespace aiacc::tools {

// Among the library's operators; and its records, a in the lower half of a word and b in the upper.
inline constexpr aiacc_op_t kUserOp = static_cast<aiacc_op_t>(-1);
inline constexpr std::size_t kRecordBytes = sizeof(std::uint64_t);

std::uint64_t map_of(std::uint32_t a, std::uint32_t b) noexcept;
std::uint64_t composed(std::uint64_t first, std::uint64_t then) noexcept;

// Made in this process while it lives.
class UserOperator {
 public:
  UserOperator();
  ~UserOperator();
  UserOperator(const UserOperator&) = delete;
  UserOperator& operator=(const UserOperator&) = delete;
  aiacc_op_t handle() const noexcept { return handle_; }

 private:
  aiacc_op_t handle_ = AIACC_SUM;
};

}  // namespace aiacc::tools
