// For tests: the collectives of the C ABI as cases, each with the input and the expected result of every rank. Sums of
// the inputs are exact in every order, so one expected result also proves that the bytes are equal on all ranks.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "include/aiacc/aiacc.h"
#include "tests/exact_inputs.h"

namespace aiacc::surface {

using exact::Bytes;

enum class Kind {
  kAllreduce,
  kReduce,
  kBroadcast,
  kAllgather,
  kAllgatherv,
  kReduceScatter,
  kReduceScatterv,
  kAlltoall,
  kAlltoallv,
  kGather,
  kGatherv,
  kScatter,
  kScatterv,
};
inline constexpr int kKinds = 13;

inline const char* name_of(Kind kind) {
  static constexpr const char* kNames[] = {"allreduce",      "reduce",          "broadcast", "allgather", "allgatherv",
                                           "reduce_scatter", "reduce_scatterv", "alltoall",  "alltoallv", "gather",
                                           "gatherv",        "scatter",         "scatterv"};
  return kNames[static_cast<int>(kind)];
}

inline bool reduces(Kind kind) {
  return kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kReduceScatter ||
         kind == Kind::kReduceScatterv;
}

struct Case {
  Kind kind = Kind::kAllreduce;
  std::size_t count = 0;  // elements of a block; approximate if blocks differ
  DType type = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  bool in_place = false;
  bool shared = false;
  bool asynchronous = false;
  std::size_t skew = 0;  // bytes before the buffers

  std::string describe() const {
    return std::string(name_of(kind)) + " of " + std::to_string(count) + " " + std::string(aiacc::name_of(type)) +
           ", " + std::string(aiacc::name_of(op)) + ", root " + std::to_string(root) + (in_place ? ", in place" : "") +
           (shared ? ", shared" : ", private") + (asynchronous ? ", asynchronous" : "") + ", skew " +
           std::to_string(skew);
  }
};

// A list of one block for each rank.
struct Blocks {
  std::vector<std::size_t> counts;
  std::vector<std::size_t> displacements;
  std::size_t span = 0;  // elements from the beginning to the end of the last block

  void add(std::size_t count, std::size_t gap) {
    counts.push_back(count);
    displacements.push_back(span + gap);
    span += gap + count;
  }
};

// The lengths of an uneven call: zero, shorter and longer ones.
inline std::size_t length(const Case& test, int from, int to) {
  const std::size_t turn = static_cast<std::size_t>(from * 5 + to * 3 + test.root) % 5;
  return turn == 0 ? 0 : test.count * turn / 3 + turn % 2;
}

inline Blocks blocks_of(const Case& test, int ranks, bool gaps, int other, bool receives) {
  Blocks blocks;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::size_t count = receives ? length(test, rank, other) : length(test, other, rank);
    blocks.add(count, gaps ? static_cast<std::size_t>(rank % 3) : 0);
  }
  return blocks;
}

// One rank's part of a case.
struct Part {
  Bytes send;
  Bytes expected;             // the whole of recv; elements that the call must not change are kUntouched
  std::size_t place = 0;      // in place: the offset of the shorter buffer in the longer one, in bytes
  bool receives = true;       // recv is compared
  Blocks out, in;             // if the call has them
  std::size_t own_count = 0;  // send_count of allgatherv and gatherv, recv_count of scatterv
};
inline constexpr std::byte kUntouched{0x5a};

inline Bytes input(const Case& test, std::size_t count, int rank) {
  return exact::input_of(test.type, reduces(test.kind) ? test.op : ReduceOp::kSum, count, rank);
}

inline void put(Bytes& into, std::size_t at, const Bytes& from, std::size_t begin, std::size_t count,
                std::size_t element) {
  if (count > 0) std::memcpy(into.data() + at * element, from.data() + begin * element, count * element);
}

inline std::vector<Part> parts_of(const Case& test, int ranks) {
  const std::size_t element = size_of(test.type);
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t count = test.count;
  const auto untouched = [element](std::size_t elements) { return Bytes(elements * element, kUntouched); };
  Call call;
  call.reduction.type = test.type;
  call.reduction.op = test.op;
  std::vector<Part> parts(n);
  std::vector<Bytes> inputs(n);
  // The inputs of all ranks.
  for (int rank = 0; rank < ranks; ++rank) {
    Part& part = parts[static_cast<std::size_t>(rank)];
    const bool is_root = rank == test.root;
    std::size_t given = count;
    switch (test.kind) {
      case Kind::kReduceScatter:
      case Kind::kAlltoall: given = count * n; break;
      case Kind::kScatter: given = is_root ? count * n : 0; break;
      case Kind::kBroadcast: given = is_root ? count : 0; break;
      case Kind::kAllgatherv:
        part.in = blocks_of(test, ranks, true, 0, true);
        given = part.own_count = part.in.counts[static_cast<std::size_t>(rank)];
        break;
      case Kind::kReduceScatterv:
        part.out = blocks_of(test, ranks, false, 0, false);
        given = part.out.span;
        break;
      case Kind::kAlltoallv:
        part.out = blocks_of(test, ranks, true, rank, false);
        part.in = blocks_of(test, ranks, true, rank, true);
        given = part.out.span;
        break;
      case Kind::kGatherv:
        if (is_root) part.in = blocks_of(test, ranks, true, test.root, true);
        given = part.own_count = length(test, rank, test.root);
        break;
      case Kind::kScatterv:
        if (is_root) part.out = blocks_of(test, ranks, true, test.root, false);
        part.own_count = length(test, test.root, rank);
        given = part.out.span;
        break;
      default: break;
    }
    part.send = input(test, given, rank);
    inputs[static_cast<std::size_t>(rank)] = part.send;
  }
  // The expected results.
  Bytes all;
  if (reduces(test.kind)) all = exact::reduced(inputs, call, inputs[0].size() / element);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto me = static_cast<std::size_t>(rank);
    Part& part = parts[me];
    const bool is_root = rank == test.root;
    const Bytes& from_root = inputs[static_cast<std::size_t>(test.root)];
    switch (test.kind) {
      case Kind::kAllreduce: part.expected = all; break;
      case Kind::kReduce:
        part.receives = is_root;
        if (is_root) part.expected = all;
        break;
      case Kind::kBroadcast: part.expected = from_root; break;
      case Kind::kReduceScatter:
        part.expected = untouched(count);
        put(part.expected, 0, all, me * count, count, element);
        part.place = me * count * element;
        break;
      case Kind::kReduceScatterv:
        part.expected = untouched(part.out.counts[me]);
        put(part.expected, 0, all, part.out.displacements[me], part.out.counts[me], element);
        part.place = part.out.displacements[me] * element;
        break;
      case Kind::kAllgather:
      case Kind::kGather:
        part.receives = test.kind == Kind::kAllgather || is_root;
        part.place = me * count * element;
        if (!part.receives) break;
        for (const Bytes& block : inputs) part.expected.insert(part.expected.end(), block.begin(), block.end());
        break;
      case Kind::kAllgatherv:
      case Kind::kGatherv:
        part.receives = test.kind == Kind::kAllgatherv || is_root;
        if (!part.receives) break;
        part.place = part.in.displacements[me] * element;
        part.expected = untouched(part.in.span);
        for (std::size_t from = 0; from < n; ++from)
          put(part.expected, part.in.displacements[from], inputs[from], 0, part.in.counts[from], element);
        break;
      case Kind::kAlltoall:
        part.expected = untouched(count * n);
        for (std::size_t from = 0; from < n; ++from)
          put(part.expected, from * count, inputs[from], me * count, count, element);
        break;
      case Kind::kAlltoallv:
        part.expected = untouched(part.in.span);
        for (std::size_t from = 0; from < n; ++from) {
          const std::size_t begin = parts[from].out.displacements[me];
          put(part.expected, part.in.displacements[from], inputs[from], begin, part.in.counts[from], element);
        }
        break;
      case Kind::kScatter:
        part.expected = untouched(count);
        part.place = me * count * element;
        put(part.expected, 0, from_root, me * count, count, element);
        break;
      case Kind::kScatterv: {
        const Blocks& out = parts[static_cast<std::size_t>(test.root)].out;
        part.expected = untouched(part.own_count);
        part.place = out.displacements[me] * element;
        put(part.expected, 0, from_root, out.displacements[me], part.own_count, element);
        break;
      }
    }
  }
  return parts;
}

// Whether this rank's two buffers are one in an in-place operation.
inline bool in_one_buffer(const Case& test, int rank) {
  switch (test.kind) {
    case Kind::kBroadcast: return true;
    case Kind::kAlltoallv: return false;
    case Kind::kReduce:
    case Kind::kGather:
    case Kind::kGatherv:
    case Kind::kScatter:
    case Kind::kScatterv: return test.in_place && rank == test.root;
    default: return test.in_place;
  }
}

// A rank's memory for its cases.
class Arena {
 public:
  Arena(aiacc_context_t context, std::size_t bytes) : bytes_(bytes), private_(2 * bytes) {
    if (aiacc_mem_alloc(context, 2 * bytes, &shared_) != AIACC_OK) shared_ = nullptr;
  }
  ~Arena() {
    if (shared_ != nullptr) aiacc_mem_free(shared_);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  bool good() const { return shared_ != nullptr; }
  std::byte* half(bool shared, int which) {
    std::byte* base = shared ? static_cast<std::byte*>(shared_) : private_.data();
    return base + static_cast<std::size_t>(which) * bytes_;
  }

 private:
  std::size_t bytes_;
  Bytes private_;
  void* shared_ = nullptr;
};
inline constexpr std::size_t kGuardBytes = 64;

inline aiacc_status_t call(const Case& test, const Part& part, const void* send, void* recv, aiacc_group_t group,
                           aiacc_request_t* request) {
  const auto type = static_cast<aiacc_dtype_t>(test.type);
  const auto op = static_cast<aiacc_op_t>(test.op);
  const auto counts = [](const Blocks& blocks) { return blocks.counts.empty() ? nullptr : blocks.counts.data(); };
  const auto places = [](const Blocks& blocks) {
    return blocks.counts.empty() ? nullptr : blocks.displacements.data();
  };
  switch (test.kind) {
    case Kind::kAllreduce: return aiacc_allreduce(send, recv, test.count, type, op, group, nullptr, request);
    case Kind::kReduce: return aiacc_reduce(send, recv, test.count, type, op, test.root, group, nullptr, request);
    case Kind::kBroadcast: return aiacc_broadcast(recv, test.count, type, test.root, group, nullptr, request);
    case Kind::kAllgather: return aiacc_allgather(send, recv, test.count, type, group, nullptr, request);
    case Kind::kAllgatherv:
      return aiacc_allgatherv(send, part.own_count, recv, counts(part.in), places(part.in), type, group, nullptr,
                              request);
    case Kind::kReduceScatter: return aiacc_reduce_scatter(send, recv, test.count, type, op, group, nullptr, request);
    case Kind::kReduceScatterv:
      return aiacc_reduce_scatterv(send, recv, counts(part.out), type, op, group, nullptr, request);
    case Kind::kAlltoall: return aiacc_alltoall(send, recv, test.count, type, group, nullptr, request);
    case Kind::kAlltoallv:
      return aiacc_alltoallv(send, counts(part.out), places(part.out), recv, counts(part.in), places(part.in), type,
                             group, nullptr, request);
    case Kind::kGather: return aiacc_gather(send, recv, test.count, type, test.root, group, nullptr, request);
    case Kind::kGatherv:
      return aiacc_gatherv(send, part.own_count, recv, counts(part.in), places(part.in), type, test.root, group,
                           nullptr, request);
    case Kind::kScatter: return aiacc_scatter(send, recv, test.count, type, test.root, group, nullptr, request);
    case Kind::kScatterv:
      return aiacc_scatterv(send, counts(part.out), places(part.out), recv, part.own_count, type, test.root, group,
                            nullptr, request);
  }
  return AIACC_ERR_INTERNAL;
}

// Runs this rank's part; returns "" or the error.
inline std::string run(const Case& test, const Part& part, int rank, Arena& arena, aiacc_group_t group) {
  const bool one = in_one_buffer(test, rank);
  std::byte* first = arena.half(test.shared, 0) + kGuardBytes + test.skew;
  std::byte* second = arena.half(test.shared, 1) + kGuardBytes + test.skew;
  std::byte* send = first;
  std::byte* recv = second;
  const std::size_t send_bytes = part.send.size();
  const std::size_t recv_bytes = part.expected.size();
  if (one) {
    const bool send_is_longer = send_bytes > recv_bytes;
    recv = first + (send_is_longer ? part.place : 0);
    send = first + (send_is_longer ? 0 : part.place);
    if (test.kind == Kind::kBroadcast) send = recv;
  }
  std::byte* const begin = std::min(send, recv);
  std::memset(recv - kGuardBytes, static_cast<int>(kUntouched), recv_bytes + 2 * kGuardBytes);
  if (one && begin != recv)
    std::memset(begin - kGuardBytes, static_cast<int>(kUntouched), send_bytes + 2 * kGuardBytes);
  if (send_bytes > 0) std::memcpy(send, part.send.data(), send_bytes);

  aiacc_request_t request = AIACC_NULL;
  aiacc_status_t status = call(test, part, send, recv, group, test.asynchronous ? &request : nullptr);
  if (status == AIACC_OK && test.asynchronous) status = aiacc_wait(request);
  if (status != AIACC_OK) return std::string(aiacc_status_name(status)) + ": " + aiacc_last_error();
  if (part.receives && recv_bytes > 0 && std::memcmp(recv, part.expected.data(), recv_bytes) != 0) {
    const auto [found, expected] = std::mismatch(recv, recv + recv_bytes, part.expected.begin());
    return "byte " + std::to_string(found - recv) + " of " + std::to_string(recv_bytes) + " is " +
           std::to_string(static_cast<int>(*found)) + " and should be " + std::to_string(static_cast<int>(*expected));
  }
  const std::byte* after = part.receives ? recv + recv_bytes : recv;
  if (one && send_bytes > recv_bytes) return "";
  for (std::size_t i = 0; i < kGuardBytes && !one; ++i) {
    if (recv[-1 - static_cast<std::ptrdiff_t>(i)] != kUntouched || after[i] != kUntouched)
      return "it wrote beyond recv";
  }
  if (!one && send_bytes > 0 && std::memcmp(send, part.send.data(), send_bytes) != 0) return "it changed send";
  return "";
}

}  // namespace aiacc::surface
