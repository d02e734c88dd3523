// Names of element types and operators, as messages and tools print them.
#include "base/data/dtype.h"

namespace aiacc {

std::string_view name_of(DType type) noexcept {
  switch (type) {
    case DType::kInt8: return "int8";
    case DType::kUInt8: return "uint8";
    case DType::kInt16: return "int16";
    case DType::kUInt16: return "uint16";
    case DType::kInt32: return "int32";
    case DType::kUInt32: return "uint32";
    case DType::kInt64: return "int64";
    case DType::kUInt64: return "uint64";
    case DType::kFloat16: return "fp16";
    case DType::kBFloat16: return "bf16";
    case DType::kFloat32: return "fp32";
    case DType::kFloat64: return "fp64";
    case DType::kBool: return "bool";
    case DType::kRecord: return "record";
  }
  return "unknown type";
}

std::string_view name_of(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::kSum: return "sum";
    case ReduceOp::kAvg: return "avg";
    case ReduceOp::kProd: return "prod";
    case ReduceOp::kMin: return "min";
    case ReduceOp::kMax: return "max";
    case ReduceOp::kBitAnd: return "bitand";
    case ReduceOp::kBitOr: return "bitor";
    case ReduceOp::kBitXor: return "bitxor";
  }
  return "unknown operator";
}

}  // namespace aiacc
