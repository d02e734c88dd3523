// A rank that runs a smaller matrix of collectives, messages and operators over the world, on one host or several:
//   surface FIRST LAST
// runs the cases with these numbers, the same on every rank. After an error it prints this and exits with 1.
#include <cstdio>
#include <cstdlib>

#include "tests/affine_op.h"
#include "tests/surface_cases.h"

namespace {

using namespace aiacc;
using namespace aiacc::surface;

constexpr std::size_t kMostBytes = std::size_t{4} << 20;

Case case_of(unsigned number, int ranks) {
  constexpr std::array<std::size_t, 6> kSizes{0, 8, 900, 20 << 10, (70 << 10) + 8, (300 << 10) + 8};
  Case test;
  test.kind = static_cast<Kind>(number % kKinds);
  const std::size_t bytes = kSizes[number / kKinds % kSizes.size()];
  test.type = static_cast<DType>(number * 7 % kDTypes);
  test.op = static_cast<ReduceOp>(number * 5 % kReduceOps);
  if (!supports(test.op, test.type)) test.op = ReduceOp::kSum;
  test.count = bytes == 0 ? 0 : bytes / size_of(test.type) | 1;
  test.root = static_cast<int>(number % static_cast<unsigned>(ranks));
  test.in_place = number / 2 % 2 == 0;
  test.shared = number / 3 % 2 == 0;
  test.asynchronous = number % 5 == 0;
  test.skew = number % 3;
  return test;
}

int failed(const std::string& what, int rank) {
  std::fprintf(stderr, "rank %d: %s\n", rank, what.c_str());
  return 1;
}

int operators(int rank, int size) {
  aiacc_op_attr_t attr = {};
  attr.size = sizeof attr;
  attr.name = "affine";
  aiacc_op_t op{};
  if (aiacc_op_create(&affine::combine, nullptr, sizeof(affine::Map), &attr, &op) != AIACC_OK) return 1;
  for (const std::size_t count : {std::size_t{1}, std::size_t{30'001}}) {
    std::vector<affine::Map> data = affine::input(rank, count);
    if (aiacc_allreduce(data.data(), data.data(), count, AIACC_RECORD, op, AIACC_WORLD, nullptr, nullptr) != AIACC_OK ||
        data != affine::composed(size, count)) {
      return failed(std::string("an operator that does not commute: ") + aiacc_last_error(), rank);
    }
  }
  return aiacc_op_free(op) == AIACC_OK ? 0 : 1;
}

int messages(int rank, int size) {
  const std::vector<int> send(100'000, rank);
  std::vector<int> recv(100'000, -1);
  const int left = (rank + size - 1) % size;
  if (aiacc_sendrecv(send.data(), send.size(), (rank + 1) % size, 1, recv.data(), recv.size(), left, 1, AIACC_INT32,
                     AIACC_WORLD, nullptr, nullptr) != AIACC_OK ||
      recv != std::vector<int>(recv.size(), left)) {
    return failed(std::string("sendrecv: ") + aiacc_last_error(), rank);
  }
  if (rank != 0) {
    return aiacc_send(send.data(), send.size(), AIACC_INT32, 0, 2, AIACC_WORLD, nullptr, nullptr) != AIACC_OK;
  }
  std::vector<bool> seen(static_cast<std::size_t>(size), false);
  for (int i = 1; i < size; ++i) {
    int from = -1;
    if (aiacc_recv_any(recv.data(), recv.size(), AIACC_INT32, &from, 2, AIACC_WORLD, nullptr, nullptr) != AIACC_OK ||
        from < 1 || from >= size || seen[static_cast<std::size_t>(from)] || recv.back() != from) {
      return failed(std::string("recv from any: ") + aiacc_last_error(), rank);
    }
    seen[static_cast<std::size_t>(from)] = true;
  }
  return 0;
}

int grouped(int rank, int size) {
  std::vector<std::vector<int>> tensors;
  std::vector<const void*> sends;
  std::vector<void*> recvs;
  std::vector<std::size_t> counts;
  for (std::size_t i = 0; i < 60; ++i) {
    tensors.emplace_back(i * i * 40, rank + static_cast<int>(i));
    counts.push_back(tensors.back().size());
  }
  for (auto& tensor : tensors) {
    sends.push_back(tensor.data());
    recvs.push_back(tensor.data());
  }
  sends[0] = recvs[0] = &counts;  // without elements
  if (aiacc_allreduce_grouped(tensors.size(), sends.data(), recvs.data(), counts.data(), AIACC_INT32, AIACC_SUM,
                              AIACC_WORLD, nullptr, nullptr) != AIACC_OK) {
    return failed(std::string("grouped: ") + aiacc_last_error(), rank);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const int expected = size * static_cast<int>(i) + size * (size - 1) / 2;
    for (const int value : tensors[i]) {
      if (value != expected) return failed("grouped: a tensor is wrong", rank);
    }
  }
  return 0;
}

int run_all(unsigned first, unsigned last) {
  int rank = 0, size = 0;
  aiacc_rank(AIACC_WORLD, &rank);
  aiacc_size(AIACC_WORLD, &size);
  Arena arena(AIACC_NULL, kMostBytes);
  if (!arena.good()) return failed(aiacc_last_error(), rank);
  for (unsigned number = first; number < last; ++number) {
    const Case test = case_of(number, size);
    const std::vector<Part> parts = parts_of(test, size);
    const std::string wrong = run(test, parts[static_cast<std::size_t>(rank)], rank, arena, AIACC_WORLD);
    if (!wrong.empty()) return failed(test.describe() + ": " + wrong, rank);
  }
  if (operators(rank, size) != 0 || messages(rank, size) != 0) return 1;
  return grouped(rank, size);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || aiacc_init(nullptr) != AIACC_OK) {
    std::fprintf(stderr, "surface FIRST LAST: %s\n", aiacc_last_error());
    return 2;
  }
  const int result = run_all(static_cast<unsigned>(std::atoi(argv[1])), static_cast<unsigned>(std::atoi(argv[2])));
  return result != 0 ? result : aiacc_finalize() != AIACC_OK;
}
