#include "bindings/c/operators.h"

#include <fmt/format.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "bindings/c/arguments.h"
#include "bindings/c/guard.h"

using namespace aiacc;
using namespace aiacc::abi;

namespace aiacc::abi {
namespace {

constexpr std::uint32_t kUserDefined = 1u << 30;
constexpr std::uint32_t kIndexBits = 15;
constexpr std::uint32_t kIndexes = 1u << kIndexBits;

bool is_user_defined(aiacc_op_t op) noexcept {
  return static_cast<int>(op) > 0 && (static_cast<std::uint32_t>(op) & kUserDefined) != 0;
}

class Operators {
 public:
  aiacc_op_t insert(std::shared_ptr<const UserOp> op) {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      if (slots_.size() == kIndexes) {
        throw Error(Code::kOutOfMemory, fmt::format("{} operators exist: free some with aiacc_op_free", kIndexes));
      }
      slots_.emplace_back();
      free_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    slots_[index].op = std::move(op);
    return handle_of(index);
  }
  std::shared_ptr<const UserOp> find(aiacc_op_t op) {
    const std::lock_guard lock(mutex_);
    const Slot* slot = slot_of(op);
    return slot == nullptr ? nullptr : slot->op;
  }
  bool remove(aiacc_op_t op) {
    const std::lock_guard lock(mutex_);
    Slot* slot = slot_of(op);
    if (slot == nullptr) return false;
    slot->op.reset();
    ++slot->generation;
    free_.push_back(index_of(op));
    return true;
  }

 private:
  struct Slot {
    std::shared_ptr<const UserOp> op;
    std::uint32_t generation = 0;
  };
  static std::uint32_t index_of(aiacc_op_t op) noexcept { return static_cast<std::uint32_t>(op) % kIndexes; }
  aiacc_op_t handle_of(std::uint32_t index) const noexcept {
    const std::uint32_t generation = slots_[index].generation % kIndexes;
    return static_cast<aiacc_op_t>(kUserDefined | generation << kIndexBits | index);
  }
  Slot* slot_of(aiacc_op_t op) noexcept {
    const std::uint32_t index = index_of(op);
    if (!is_user_defined(op) || index >= slots_.size()) return nullptr;
    return slots_[index].op != nullptr && handle_of(index) == op ? &slots_[index] : nullptr;
  }

  std::mutex mutex_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
};

// Never destroyed, like all state behind the ABI.
Operators& operators() {
  static Operators* const made = new Operators();
  return *made;
}

Error unknown_operator(aiacc_op_t op) {
  return Error(
      Code::kInvalidHandle,
      fmt::format("operator {:#x} does not exist (any more): pass one of aiacc_op_create", static_cast<int>(op)));
}

}  // namespace

std::shared_ptr<const UserOp> set_user_reduction(Call& call, aiacc_dtype_t dtype, aiacc_op_t op) {
  if (dtype != AIACC_RECORD && !is_user_defined(op)) refuse_op(static_cast<int>(op), checked_dtype(dtype));
  if (dtype != AIACC_RECORD) {
    checked_dtype(dtype);
    throw Error(Code::kInvalidArgument,
                fmt::format("operator {:#x} of aiacc_op_create takes AIACC_RECORD, not dtype {}", static_cast<int>(op),
                            static_cast<int>(dtype)));
  }
  if (!is_user_defined(op)) {
    throw Error(Code::kInvalidArgument,
                fmt::format("dtype 13 is AIACC_RECORD, the type of operators of aiacc_op_create, and op {} is none",
                            static_cast<int>(op)));
  }
  std::shared_ptr<const UserOp> user = operators().find(op);
  if (user == nullptr) throw unknown_operator(op);
  call.reduction.type = DType::kRecord;
  call.reduction.user = user.get();
  return user;
}

void submit_user_reduction(GroupPin& pin, Call& call, Buffer send, Buffer recv, const aiacc_attr_t* attr,
                           std::shared_ptr<const UserOp> keeps, aiacc_request_t* request) {
  CallOptions options;
  bool other = read_attr(attr, call, options);
  if (call.reduction.prescale != 1.0 || call.reduction.postscale != 1.0) {
    throw Error(Code::kInvalidArgument,
                fmt::format("prescale and postscale mean nothing to operator '{}': scale inside of it", keeps->name));
  }
  // A blocking call keeps its arguments on this stack, so it may use the path of small calls.
  other = other || request != nullptr;
  options.keeps = std::move(keeps);
  submit(pin, call, send, recv, other ? &options : nullptr, request);
}

}  // namespace aiacc::abi

extern "C" {

aiacc_status_t aiacc_op_create(aiacc_op_function_t function, void* arg, size_t record_bytes,
                               const aiacc_op_attr_t* attr, aiacc_op_t* op) {
  return guarded([&] {
    refuse_forked();
    if (function == nullptr) throw Error(Code::kInvalidArgument, "function is NULL: pass what combines two records");
    if (op == nullptr) throw Error(Code::kInvalidArgument, "op is NULL: pass where the operator shall go");
    if (record_bytes == 0 || record_bytes > UserOp::kMostRecordBytes) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("record_bytes is {}: a record has 1 to {} bytes; pass several as `count`", record_bytes,
                              UserOp::kMostRecordBytes));
    }
    auto made = std::make_shared<UserOp>();
    made->function = function;
    made->arg = arg;
    made->record_bytes = record_bytes;
    if (attr != nullptr) {
      if (attr->size != sizeof(aiacc_op_attr_t)) {
        throw Error(Code::kInvalidArgument,
                    fmt::format("size in aiacc_op_attr_t is {}: set it to sizeof(aiacc_op_attr_t), "
                                "which is {} here",
                                attr->size, sizeof(aiacc_op_attr_t)));
      }
      constexpr std::size_t kLongestName = 200;
      if (attr->name != nullptr) made->name.assign(attr->name, strnlen(attr->name, kLongestName));
      made->commutative = attr->commutative != 0;
    }
    *op = operators().insert(std::move(made));
  });
}

aiacc_status_t aiacc_op_free(aiacc_op_t op) {
  return guarded([&] {
    refuse_forked();
    if (!operators().remove(op)) throw unknown_operator(op);
  });
}

}  // extern "C"
