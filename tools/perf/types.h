// The element types and operators that can be measured, by nccl-tests' names.
#pragma once

#include <span>
#include <string_view>

#include "include/aiacc/aiacc.h"

namespace aiacc::tools {

struct TypeName {
  std::string_view name;
  aiacc_dtype_t type;
};
struct OpName {
  std::string_view name;
  aiacc_op_t op;
};

std::span<const TypeName> type_names() noexcept;
std::span<const OpName> op_names() noexcept;
std::size_t size_of(aiacc_dtype_t type) noexcept;  // of an element, or of a record of user_op.h
std::string_view name_of(aiacc_dtype_t type) noexcept;
std::string_view name_of(aiacc_op_t op) noexcept;
bool is_floating(aiacc_dtype_t type) noexcept;
// Whether the operator supports the type: bitwise ones only integers and bool.
bool supports(aiacc_op_t op, aiacc_dtype_t type) noexcept;

}  // namespace aiacc::tools
