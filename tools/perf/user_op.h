// The operator of -o user: the composition of the maps x -> a x + b on 32-bit numbers, lower ranks applied first. It is
// associative, not commutative and exact, so the comparison also verifies the order of ranks.
#pragma once

#include <cstdint>

#include "include/aiacc/aiacc.h"

namespace aiacc::tools {

// Its code among the library's operators; and its records, with a in the lower half of a word and b in the upper half.
inline constexpr aiacc_op_t kUserOp = static_cast<aiacc_op_t>(-1);
inline constexpr std::size_t kRecordBytes = sizeof(std::uint64_t);

std::uint64_t map_of(std::uint32_t a, std::uint32_t b) noexcept;
std::uint64_t composed(std::uint64_t first, std::uint64_t then) noexcept;

// Creates the operator in this process; frees it when destroyed.
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
