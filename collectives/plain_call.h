// PlainCall: a call without scales, lists, a codec or an operator of its own, in a few words: what paths without an operation serve,
// and what they write down of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/operation.h"

namespace aiacc {

struct PlainCall {
  Collective kind = Collective::kBarrier;
  DType type = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::uint32_t tag = 0;  // as in Call, as what follows
  std::int32_t root = 0;
  std::size_t count = 0;

  // Whether it says all about the call.
  static bool describes(const Call& call) noexcept {
    return call.reduction.user == nullptr && describes_but_operator(call);
  }
  // All but the operator of the caller, if it has one.
  static bool describes_but_operator(const Call& call) noexcept {
    const Reduction& reduction = call.reduction;
    const bool one_type = !reduction.operands.named() && !reduction.results.named() && !reduction.rounds_phases;
    const bool no_lists = !call.uneven && call.blocks.empty() && call.recv_blocks.empty() && call.tensors.empty();
    return one_type && no_lists && reduction.codec == Codec::kNone && reduction.prescale == 1.0 &&
           reduction.postscale == 1.0 && call.recv_count == 0 && call.from == 0 && call.recv_tag == 0 &&
           call.sender == nullptr;
  }
  // Of a call that it describes.
  static PlainCall of(const Call& call) noexcept {
    return {call.kind, call.reduction.type, call.reduction.op, call.tag, call.root, call.count};
  }
  bool operator==(const PlainCall&) const = default;
  Call call() const noexcept {
    Call call;
    call.kind = kind;
    call.count = count;
    call.reduction.type = type;
    call.reduction.op = op;
    call.root = root;
    call.tag = tag;
    return call;
  }
};

}  // namespace aiacc
