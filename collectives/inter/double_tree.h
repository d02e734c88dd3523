// Allreduce, reduce and broadcast by two binary trees (two_trees.h), of which each carries half of the elements in chunks, as
// NCCL does between hosts: sums go up to the root, the result down. While a chunk goes down, the next ones go up.
//
//   allreduce: with chunks of m bytes in h = ⌈log₂ n⌉ levels: 2hα + 2Sβ + 6hmβ + 4hmγ + (4S/m + 6h)o
//
// where o is the processor's time to send or to receive a message. Each rank is an inner node of one tree, where it gets two
// operands and a result and sends a sum and two results, and a leaf of the other, where it sends an operand and gets a result:
// 4m bytes each way for a chunk of both trees, of which there are S/(2m). In a level, the first chunk waits for that of the other
// child and for one of the other tree, 3m either way, and for a sum of two operands with a rank's own. A reduce or a broadcast takes
// half of all that.
//
// A ring moves as many bytes, but has 2(n−1) latencies. Recursive halving has as many latencies and moves a little less, but wants a
// power of two of ranks, and the whole payload is in one step at a time. The time is least for m = √(2oS / 3hβ).
//
// An allreduce combines its operands in the order of the ranks, so it serves operators that do not commute; each half of the
// elements is completed at one rank and copied from there, so all ranks have the same bits. 16-bit floats go up as partial sums in
// fp32, are rounded once, at the root, and go down in 16 bits: 3S bytes.
#pragma once

#include "collectives/inter/algorithm_info.h"
#include "collectives/inter/inter_call.h"
#include "collectives/operation.h"

namespace aiacc::inter {

// No chunk is shorter, unless half of the payload is.
inline constexpr std::size_t kShortestTreeChunk = 16 << 10;
// An upper bound of the steps for a payload; `bytes` are in the type in which sums are made.
constexpr std::uint64_t double_tree_steps(std::size_t bytes) noexcept {
  return 2 * (bytes / 2 / kShortestTreeChunk + 2);
}

Task<void> double_tree_allreduce(Operation& op);
Task<void> double_tree_reduce(Operation& op);
// The buffer is op.recv on every rank; if the root's op.send is a different buffer, it is copied to op.recv.
Task<void> double_tree_broadcast(Operation& op);
extern const AlgorithmInfo kDoubleTreeAllreduceInfo;
extern const AlgorithmInfo kDoubleTreeReduceInfo;
extern const AlgorithmInfo kDoubleTreeBroadcastInfo;

}  // namespace aiacc::inter
