// Compares every collective of the C ABI, with threads as ranks, with an exact reference: sizes of worlds, types,
// operators, blocking and asynchronous, in place or not, private and shared memory, odd counts at odd addresses.
#include <array>
#include <cstring>
#include <random>

#include "base/data/reference_reduce.h"
#include "tests/abi_world.h"

namespace aiacc {
namespace {

using test::World;

enum class Memory { kPrivate, kShared };

// A rank's buffer for a test, `skew` elements into its memory, with guard bytes on both sides.
class Block {
 public:
  Block(aiacc_context_t context, Memory kind, std::size_t bytes, std::size_t skew_bytes)
      : kind_(kind), bytes_(bytes), all_(kGuard + skew_bytes + bytes + kGuard) {
    if (kind == Memory::kShared) {
      void* memory = nullptr;
      EXPECT_AIACC(aiacc_mem_alloc(context, all_, &memory));
      base_ = static_cast<std::byte*>(memory);
    } else {
      heap_.resize(all_);
      base_ = heap_.data();
    }
    std::memset(base_, 0x5a, all_);
    data_ = base_ + kGuard + skew_bytes;
  }
  ~Block() {
    if (kind_ == Memory::kShared) {
      EXPECT_AIACC(aiacc_mem_free(base_));
    }
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  bool intact() const {
    for (const std::byte* at = base_; at < data_; ++at) {
      if (*at != std::byte{0x5a}) return false;
    }
    for (const std::byte* at = data_ + bytes_; at < base_ + all_; ++at) {
      if (*at != std::byte{0x5a}) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  Memory kind_;
  std::size_t bytes_;
  std::size_t all_;
  std::vector<std::byte> heap_;
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
};

// The input of one rank: small values of the type; floats are rounded and integers may wrap.
std::vector<std::byte> input(DType type, std::size_t count, int rank, unsigned salt) {
  std::mt19937 random(salt * 1000 + static_cast<unsigned>(rank));
  std::vector<std::byte> bytes(count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(static_cast<int>(random() % 4001) - 2000) / 16.0;
    const auto put = [&](auto element) { std::memcpy(bytes.data() + i * sizeof element, &element, sizeof element); };
    switch (type) {
      case DType::kFloat16: put(reference::float_to_half(static_cast<float>(value / 16))); break;
      case DType::kBFloat16: put(reference::float_to_bfloat(static_cast<float>(value))); break;
      case DType::kFloat32: put(static_cast<float>(value) / 3.0f); break;
      case DType::kFloat64: put(value / 3.0); break;
      case DType::kBool: put(static_cast<std::uint8_t>(random() & 1)); break;
      case DType::kInt8:
      case DType::kUInt8: put(static_cast<std::uint8_t>(random())); break;
      case DType::kInt16:
      case DType::kUInt16: put(static_cast<std::uint16_t>(random())); break;
      case DType::kInt32:
      case DType::kUInt32: put(static_cast<std::uint32_t>(random())); break;
      case DType::kInt64:
      case DType::kUInt64: put(static_cast<std::uint64_t>(random()) << 20); break;
      case DType::kRecord: break;
    }
  }
  return bytes;
}

Buffer buffer(const std::vector<std::byte>& bytes) {
  Buffer made;
  made.data = const_cast<std::byte*>(bytes.data());
  made.bytes = bytes.size();
  return made;
}

std::vector<std::byte> reduced(const std::vector<std::vector<std::byte>>& inputs, std::size_t count,
                               const Reduction& reduction) {
  std::vector<Buffer> operands;
  for (const auto& bytes : inputs) operands.push_back(buffer(bytes));
  std::vector<std::byte> result(count * size_of(reduction.type));
  reference::reduce(result.data(), operands, count, reduction, {true, true, static_cast<int>(inputs.size())});
  return result;
}

// Calls in blocking form, or starts and waits.
template <class Call>
aiacc_status_t finish(bool asynchronous, Call&& call) {
  if (!asynchronous) return call(nullptr);
  aiacc_request_t request = AIACC_NULL;
  const aiacc_status_t started = call(&request);
  return started == AIACC_OK ? aiacc_wait(request) : started;
}

struct Variant {
  bool in_place;
  bool asynchronous;
  Memory memory;
  std::size_t count;
  std::size_t skew;  // in elements
};

std::vector<Variant> variants() {
  std::vector<Variant> all;
  constexpr std::array<std::size_t, 6> kCounts{1, 3, 8, 65, 1000, 4099};
  unsigned turn = 0;
  for (const std::size_t count : kCounts) {
    for (const bool in_place : {false, true}) {
      for (const Memory memory : {Memory::kPrivate, Memory::kShared}) {
        // Blocking and asynchronous calls, even and odd addresses alternate: all combinations would take minutes.
        ++turn;
        all.push_back({in_place, turn % 2 == 0, memory, count, turn % 3});
      }
    }
  }
  return all;
}

std::string describe(const Variant& variant, DType type, ReduceOp op) {
  return std::string(name_of(type)) + " " + std::string(name_of(op)) + " count " + std::to_string(variant.count) +
         (variant.in_place ? " in place" : "") + (variant.asynchronous ? " asynchronous" : "") +
         (variant.memory == Memory::kShared ? " shared" : " private") + " skew " + std::to_string(variant.skew);
}

aiacc_dtype_t abi(DType type) { return static_cast<aiacc_dtype_t>(type); }
aiacc_op_t abi(ReduceOp op) { return static_cast<aiacc_op_t>(op); }

class Collectives : public testing::TestWithParam<int> {
 protected:
  std::size_t ranks() const { return static_cast<std::size_t>(GetParam()); }

  std::vector<std::vector<std::byte>> inputs(DType type, std::size_t count, unsigned salt) const {
    std::vector<std::vector<std::byte>> all;
    for (int rank = 0; rank < GetParam(); ++rank) all.push_back(input(type, count, rank, salt));
    return all;
  }
};

bool same_bytes(const std::byte* have, const std::byte* want, std::size_t bytes) {
  return std::memcmp(have, want, bytes) == 0;
}

TEST_P(Collectives, AllreduceOfEveryTypeAndOperator) {
  World world(ranks());
  unsigned salt = 0;
  for (int t = 0; t < kDTypes; ++t) {
    for (int o = 0; o < kReduceOps; ++o) {
      const auto type = static_cast<DType>(t);
      const auto op = static_cast<ReduceOp>(o);
      if (!supports(op, type)) continue;
      const std::vector<Variant> all = variants();
      const Variant variant = all[++salt % all.size()];
      Reduction reduction;
      reduction.type = type;
      reduction.op = op;
      const auto from = inputs(type, variant.count, salt);
      const auto want = reduced(from, variant.count, reduction);
      world.run([&](int rank, aiacc_group_t group) {
        const std::size_t skew = variant.skew * size_of(type);
        const auto& mine = from[static_cast<std::size_t>(rank)];
        Block send(world.context(rank), variant.memory, mine.size(), skew);
        Block recv(world.context(rank), variant.memory, mine.size(), skew);
        std::memcpy((variant.in_place ? recv : send).data(), mine.data(), mine.size());
        const aiacc_status_t status = finish(variant.asynchronous, [&](aiacc_request_t* request) {
          return aiacc_allreduce(variant.in_place ? recv.data() : send.data(), recv.data(), variant.count, abi(type),
                                 abi(op), group, nullptr, request);
        });
        EXPECT_EQ(status, AIACC_OK) << aiacc_last_error();
        EXPECT_TRUE(same_bytes(recv.data(), want.data(), want.size()))
            << describe(variant, type, op) << " rank " << rank;
        EXPECT_TRUE(send.intact() && recv.intact()) << describe(variant, type, op);
      });
    }
  }
}

TEST_P(Collectives, AllreduceInEveryVariant) {
  World world(ranks());
  unsigned salt = 0;
  for (const Variant& variant : variants()) {
    for (const DType type : {DType::kFloat32, DType::kInt8}) {
      ++salt;
      const auto from = inputs(type, variant.count, salt);
      Reduction reduction;
      reduction.type = type;
      const auto want = reduced(from, variant.count, reduction);
      world.run([&](int rank, aiacc_group_t group) {
        const auto& mine = from[static_cast<std::size_t>(rank)];
        Block send(world.context(rank), variant.memory, mine.size(), variant.skew);
        Block recv(world.context(rank), variant.memory, mine.size(), variant.skew);
        for (const bool asynchronous : {false, true}) {
          std::memcpy((variant.in_place ? recv : send).data(), mine.data(), mine.size());
          EXPECT_AIACC(finish(asynchronous, [&](aiacc_request_t* request) {
            return aiacc_allreduce(variant.in_place ? recv.data() : send.data(), recv.data(), variant.count, abi(type),
                                   AIACC_SUM, group, nullptr, request);
          }));
          EXPECT_TRUE(same_bytes(recv.data(), want.data(), want.size())) << describe(variant, type, ReduceOp::kSum);
        }
        if (!variant.in_place) {
          EXPECT_TRUE(same_bytes(send.data(), mine.data(), mine.size())) << "send is only read";
        }
        EXPECT_TRUE(send.intact() && recv.intact()) << describe(variant, type, ReduceOp::kSum);
      });
    }
  }
}

TEST_P(Collectives, ScalesAreAppliedInTheAccumulateType) {
  World world(ranks());
  Reduction reduction;
  reduction.type = DType::kFloat16;
  reduction.op = ReduceOp::kAvg;
  reduction.prescale = 0.5;
  reduction.postscale = 3.0;
  for (const std::size_t count : {std::size_t{3}, std::size_t{5000}}) {
    const auto from = inputs(DType::kFloat16, count, 77);
    const auto want = reduced(from, count, reduction);
    world.run([&](int rank, aiacc_group_t group) {
      auto data = from[static_cast<std::size_t>(rank)];
      aiacc_attr_t attr = {};
      attr.size = sizeof attr;
      attr.name = "scaled";
      attr.prescale = 0.5;
      attr.postscale = 3.0;
      EXPECT_AIACC(aiacc_allreduce(data.data(), data.data(), count, AIACC_FLOAT16, AIACC_AVG, group, &attr, nullptr));
      EXPECT_EQ(data, want);
    });
  }
}

TEST_P(Collectives, TrafficClassesOfRanksMayDiffer) {
  World world(ranks());
  world.run([&](int rank, aiacc_group_t group) {
    aiacc_attr_t attr = {};
    attr.size = sizeof attr;
    for (const std::size_t count : {std::size_t{1}, std::size_t{5000}}) {
      std::vector<int> data(count, rank);
      attr.traffic_class = rank % (AIACC_TRAFFIC_BACKGROUND + 1);
      EXPECT_AIACC(aiacc_allreduce(data.data(), data.data(), count, AIACC_INT32, AIACC_MAX, group, &attr, nullptr));
      EXPECT_EQ(data, std::vector<int>(count, world.size() - 1));
    }
  });
}

TEST_P(Collectives, ReduceToEachRoot) {
  World world(ranks());
  unsigned salt = 0;
  for (const Variant& variant : variants()) {
    const int root = static_cast<int>(++salt % ranks());
    const DType type = salt % 2 == 0 ? DType::kBFloat16 : DType::kInt32;
    Reduction reduction;
    reduction.type = type;
    const auto from = inputs(type, variant.count, salt);
    const auto want = reduced(from, variant.count, reduction);
    world.run([&](int rank, aiacc_group_t group) {
      const auto& mine = from[static_cast<std::size_t>(rank)];
      const std::size_t skew = variant.skew * size_of(type);
      Block send(world.context(rank), variant.memory, mine.size(), skew);
      Block recv(world.context(rank), variant.memory, mine.size(), skew);
      const bool is_root = rank == root;
      const bool in_place = is_root && variant.in_place;
      std::memcpy((in_place ? recv : send).data(), mine.data(), mine.size());
      EXPECT_AIACC(finish(variant.asynchronous, [&](aiacc_request_t* request) {
        return aiacc_reduce(in_place ? recv.data() : send.data(), is_root ? recv.data() : nullptr, variant.count,
                            abi(type), AIACC_SUM, root, group, nullptr, request);
      }));
      if (is_root) {
        EXPECT_TRUE(same_bytes(recv.data(), want.data(), want.size())) << describe(variant, type, ReduceOp::kSum);
      }
      if (!in_place) {
        EXPECT_TRUE(same_bytes(send.data(), mine.data(), mine.size())) << "send is only read";
      }
      EXPECT_TRUE(send.intact() && recv.intact());
    });
  }
}

TEST_P(Collectives, BroadcastFromEachRoot) {
  World world(ranks());
  unsigned salt = 0;
  for (const Variant& variant : variants()) {
    const int root = static_cast<int>(++salt % ranks());
    const auto from = input(DType::kInt16, variant.count, root, salt);
    world.run([&](int rank, aiacc_group_t group) {
      Block block(world.context(rank), variant.memory, from.size(), 2 * variant.skew);
      if (rank == root) std::memcpy(block.data(), from.data(), from.size());
      EXPECT_AIACC(finish(variant.asynchronous, [&](aiacc_request_t* request) {
        return aiacc_broadcast(block.data(), variant.count, AIACC_INT16, root, group, nullptr, request);
      }));
      EXPECT_TRUE(same_bytes(block.data(), from.data(), from.size()))
          << describe(variant, DType::kInt16, ReduceOp::kSum);
      EXPECT_TRUE(block.intact());
    });
  }
}

TEST_P(Collectives, Allgather) {
  World world(ranks());
  unsigned salt = 0;
  for (const Variant& variant : variants()) {
    const auto from = inputs(DType::kUInt8, variant.count, ++salt);
    std::vector<std::byte> want;
    for (const auto& part : from) want.insert(want.end(), part.begin(), part.end());
    world.run([&](int rank, aiacc_group_t group) {
      const auto& mine = from[static_cast<std::size_t>(rank)];
      Block send(world.context(rank), variant.memory, mine.size(), variant.skew);
      Block recv(world.context(rank), variant.memory, want.size(), variant.skew);
      std::byte* own = variant.in_place ? recv.data() + static_cast<std::size_t>(rank) * mine.size() : send.data();
      std::memcpy(own, mine.data(), mine.size());
      EXPECT_AIACC(finish(variant.asynchronous, [&](aiacc_request_t* request) {
        return aiacc_allgather(own, recv.data(), variant.count, AIACC_UINT8, group, nullptr, request);
      }));
      EXPECT_TRUE(same_bytes(recv.data(), want.data(), want.size()))
          << describe(variant, DType::kUInt8, ReduceOp::kSum);
      EXPECT_TRUE(send.intact() && recv.intact());
    });
  }
}

TEST_P(Collectives, ReduceScatter) {
  World world(ranks());
  unsigned salt = 0;
  for (const Variant& variant : variants()) {
    const DType type = ++salt % 2 == 0 ? DType::kFloat64 : DType::kFloat16;
    const std::size_t total = variant.count * ranks();
    Reduction reduction;
    reduction.type = type;
    reduction.op = salt % 3 == 0 ? ReduceOp::kAvg : ReduceOp::kSum;
    const auto from = inputs(type, total, salt);
    const auto want = reduced(from, total, reduction);
    world.run([&](int rank, aiacc_group_t group) {
      const auto& mine = from[static_cast<std::size_t>(rank)];
      const std::size_t bytes = variant.count * size_of(type);
      const std::size_t skew = variant.skew * size_of(type);
      Block send(world.context(rank), variant.memory, mine.size(), skew);
      Block recv(world.context(rank), variant.memory, bytes, skew);
      std::memcpy(send.data(), mine.data(), mine.size());
      const std::size_t at = static_cast<std::size_t>(rank) * bytes;
      std::byte* into = variant.in_place ? send.data() + at : recv.data();
      EXPECT_AIACC(finish(variant.asynchronous, [&](aiacc_request_t* request) {
        return aiacc_reduce_scatter(send.data(), into, variant.count, abi(type), abi(reduction.op), group, nullptr,
                                    request);
      }));
      EXPECT_TRUE(same_bytes(into, want.data() + at, bytes))
          << describe(variant, type, reduction.op) << " rank " << rank;
      EXPECT_TRUE(send.intact() && recv.intact());
    });
  }
}

TEST_P(Collectives, ABarrierReturnsAfterAllHaveCalledIt) {
  World world(ranks());
  std::atomic<int> arrived{0};
  world.run([&](int, aiacc_group_t group) {
    for (int round = 1; round <= 50; ++round) {
      ++arrived;
      EXPECT_AIACC(
          finish(round % 2 == 0, [&](aiacc_request_t* request) { return aiacc_barrier(group, nullptr, request); }));
      EXPECT_GE(arrived.load(), round * GetParam());
      EXPECT_AIACC(aiacc_barrier(group, nullptr, nullptr));
    }
  });
}

TEST_P(Collectives, MessagesAreMatchedBySenderAndTagInOrder) {
  World world(ranks());
  for (const std::size_t count : {std::size_t{1}, std::size_t{700}, std::size_t{300'000}}) {
    world.run([&](int rank, aiacc_group_t group) {
      const int to = (rank + 1) % GetParam();
      const int from = (rank + GetParam() - 1) % GetParam();
      constexpr int kMessages = 6;
      std::vector<std::vector<int>> out;
      std::vector<std::vector<int>> in(kMessages, std::vector<int>(count, -1));
      std::vector<aiacc_request_t> requests(2 * kMessages);
      for (int i = 0; i < kMessages; ++i) out.emplace_back(count, rank * 100 + i);
      for (std::size_t i = 0; i < kMessages; ++i) {
        EXPECT_AIACC(aiacc_send(out[i].data(), count, AIACC_INT32, to, static_cast<std::uint32_t>(i % 2), group,
                                nullptr, &requests[2 * i]));
      }
      // Receives tag 1 first: messages of a tag arrive in the order of the sends, in any order of tags.
      constexpr std::array<std::size_t, kMessages> kOrder{1, 0, 3, 5, 2, 4};
      for (const std::size_t i : kOrder) {
        EXPECT_AIACC(aiacc_recv(in[i].data(), count, AIACC_INT32, from, static_cast<std::uint32_t>(i % 2), group,
                                nullptr, &requests[2 * i + 1]));
      }
      for (const aiacc_request_t request : requests) EXPECT_AIACC(aiacc_wait(request));
      for (int i = 0; i < kMessages; ++i) {
        EXPECT_EQ(in[static_cast<std::size_t>(i)], std::vector<int>(count, from * 100 + i)) << i;
      }
    });
  }
}

TEST_P(Collectives, NothingIsACount) {
  World world(ranks());
  world.run([&](int, aiacc_group_t group) {
    EXPECT_AIACC(aiacc_allreduce(nullptr, nullptr, 0, AIACC_FLOAT32, AIACC_SUM, group, nullptr, nullptr));
    EXPECT_AIACC(aiacc_broadcast(nullptr, 0, AIACC_FLOAT32, 0, group, nullptr, nullptr));
    EXPECT_AIACC(aiacc_allgather(nullptr, nullptr, 0, AIACC_FLOAT32, group, nullptr, nullptr));
    EXPECT_AIACC(aiacc_reduce_scatter(nullptr, nullptr, 0, AIACC_FLOAT32, AIACC_SUM, group, nullptr, nullptr));
    EXPECT_AIACC(aiacc_barrier(group, nullptr, nullptr));
  });
}

TEST_P(Collectives, ManyInFlightInOneOrder) {
  World world(ranks());
  constexpr std::size_t kOperations = 200;
  world.run([&](int rank, aiacc_group_t group) {
    std::vector<std::vector<float>> data(kOperations);
    std::vector<aiacc_request_t> requests(kOperations);
    for (std::size_t i = 0; i < kOperations; ++i) {
      data[i].assign(1 + i * 13 % 3000, static_cast<float>(i + 1));
      EXPECT_AIACC(aiacc_allreduce(data[i].data(), data[i].data(), data[i].size(), AIACC_FLOAT32, AIACC_SUM, group,
                                   nullptr, &requests[i]));
    }
    float one = 1;  // a blocking call among them keeps the order
    EXPECT_AIACC(aiacc_allreduce(&one, &one, 1, AIACC_FLOAT32, AIACC_SUM, group, nullptr, nullptr));
    EXPECT_EQ(one, static_cast<float>(GetParam()));
    for (std::size_t k = 0; k < kOperations; ++k) {
      const std::size_t i = rank % 2 == 0 ? k : kOperations - 1 - k;
      EXPECT_AIACC(aiacc_wait(requests[i]));
      EXPECT_EQ(data[i].front(), static_cast<float>((i + 1) * ranks()));
      EXPECT_EQ(data[i].back(), static_cast<float>((i + 1) * ranks()));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::Values(1, 2, 3, 4, 5, 7, 8));

}  // namespace
}  // namespace aiacc
