#include "tools/perf/types.h"

#include <array>

#include "tools/perf/user_op.h"

namespace aiacc::tools {

namespace {

constexpr std::array kTypes = {
    TypeName{"int8", AIACC_INT8},         TypeName{"uint8", AIACC_UINT8},   TypeName{"int16", AIACC_INT16},
    TypeName{"uint16", AIACC_UINT16},     TypeName{"int32", AIACC_INT32},   TypeName{"uint32", AIACC_UINT32},
    TypeName{"int64", AIACC_INT64},       TypeName{"uint64", AIACC_UINT64}, TypeName{"half", AIACC_FLOAT16},
    TypeName{"bfloat16", AIACC_BFLOAT16}, TypeName{"float", AIACC_FLOAT32}, TypeName{"double", AIACC_FLOAT64},
    TypeName{"bool", AIACC_BOOL},
};
constexpr std::array kOps = {
    OpName{"sum", AIACC_SUM}, OpName{"avg", AIACC_AVG},   OpName{"prod", AIACC_PROD},
    OpName{"min", AIACC_MIN}, OpName{"max", AIACC_MAX},   OpName{"band", AIACC_BAND},
    OpName{"bor", AIACC_BOR}, OpName{"bxor", AIACC_BXOR}, OpName{"user", kUserOp},
};

}  // namespace

std::span<const TypeName> type_names() noexcept { return kTypes; }
std::span<const OpName> op_names() noexcept { return kOps; }

std::size_t size_of(aiacc_dtype_t type) noexcept {
  return type == AIACC_RECORD ? kRecordBytes : aiacc_dtype_size(type);
}

std::string_view name_of(aiacc_dtype_t type) noexcept {
  if (type == AIACC_RECORD) return "record";
  for (const TypeName& one : kTypes) {
    if (one.type == type) return one.name;
  }
  return "?";
}

std::string_view name_of(aiacc_op_t op) noexcept {
  for (const OpName& one : kOps) {
    if (one.op == op) return one.name;
  }
  return "?";
}

bool is_floating(aiacc_dtype_t type) noexcept {
  return type == AIACC_FLOAT16 || type == AIACC_BFLOAT16 || type == AIACC_FLOAT32 || type == AIACC_FLOAT64;
}

bool supports(aiacc_op_t op, aiacc_dtype_t type) noexcept {
  return !is_floating(type) || (op != AIACC_BAND && op != AIACC_BOR && op != AIACC_BXOR);
}

}  // namespace aiacc::tools
