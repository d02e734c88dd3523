// What members write into their control lines: payloads of every length, and what they say of their calls.
#include <gtest/gtest.h>

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "collectives/intra/intra_call_test.h"
#include "collectives/intra/select.h"
#include "collectives/intra/small.h"
#include "tests/host_world.h"

namespace aiacc::intra {
namespace {

using namespace std::chrono_literals;

// At once if it can, as the ABI does; returns the error's sentence.
std::string call_on(Rank& rank, const Call& call, Buffer send, Buffer recv) {
  if (try_small(rank.host, call, send.data, recv.data) == Small::kDone) return "";
  Stop stop;
  Deadline deadline(rank.loop, after(rank.loop.now(), 60s), stop, "the collective does not end");
  Operation op{rank.team, call, ++rank.sequence, stop, send, recv};
  try {
    rank.loop.run(run(op));
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

// Each in both of a member's lines, in words of which the last one is not whole.
TEST(IntraLines, CarryPayloadsOfEveryLength) {
  run_ranks(2, [](Rank& rank) {
    rank.host.set_patience({.spins = 1 << 20});
    for (std::size_t count = 1; count <= 2 * IntraTeam::kInlineBytes; ++count) {
      const std::size_t bytes = (count + 1) / 2;
      const auto value_of = [count](int member, std::size_t i) {
        return static_cast<std::uint8_t>(37 * i + count + static_cast<std::size_t>(100 * member));
      };
      std::vector<std::uint8_t> mine(bytes), all(2 * bytes + 1, 0xee);
      for (std::size_t i = 0; i < bytes; ++i) mine[i] = value_of(rank.rank(), i);
      const Buffer send{reinterpret_cast<std::byte*>(mine.data()), bytes};
      const Buffer recv{reinterpret_cast<std::byte*>(all.data()), 2 * bytes};
      ASSERT_EQ(call_on(rank, call_of(Collective::kAllgather, bytes, DType::kUInt8), send, recv), "");
      for (int member = 0; member < 2; ++member) {
        for (std::size_t i = 0; i < bytes; ++i) {
          ASSERT_EQ(all[static_cast<std::size_t>(member) * bytes + i], value_of(member, i))
              << bytes << " bytes, at " << i;
        }
      }
      ASSERT_EQ(all.back(), 0xee) << bytes << " bytes";
    }
  });
}

// A member does not write down again what its line says already.
TEST(IntraLines, NameTheCallsThatDifferAfterManyThatDoNot) {
  std::vector<std::string> sentences(2);
  run_ranks(2, [&sentences](Rank& rank) {
    std::vector<float> data(8);
    const Buffer buffer{reinterpret_cast<std::byte*>(data.data()), 32};
    for (const std::size_t count : {3, 3, 3, 3, 3, 4, 4, 5}) {
      ASSERT_EQ(
          call_on(rank, call_of(Collective::kAllreduce, count), buffer.slice(0, 4 * count), buffer.slice(0, 4 * count)),
          "");
    }
    const std::size_t count = rank.rank() == 0 ? 4 : 6;
    sentences[static_cast<std::size_t>(rank.rank())] =
        call_on(rank, call_of(Collective::kAllreduce, count), buffer.slice(0, 4 * count), buffer.slice(0, 4 * count));
  });
  for (const std::string& sentence : sentences) {
    EXPECT_NE(sentence.find("rank 0: allreduce of 4 fp32, sum; rank 1: allreduce of 6 fp32, sum"), std::string::npos)
        << sentence;
  }
}

// Members need not agree on the lengths of an uneven alltoall, so its fingerprint does not have them.
TEST(IntraLines, NameTheLengthOfTheLastOfSeveralUnevenCalls) {
  std::vector<std::string> sentences(2);
  run_ranks(2, [&sentences](Rank& rank) {
    std::vector<float> data(16), other(16);
    const auto exchange = [&](std::size_t to_each) {
      const std::vector<Extent> blocks{{0, to_each}, {to_each, to_each}};
      Call call = call_of(Collective::kAlltoall, 2 * to_each);
      call.uneven = true;
      call.blocks = blocks;
      call.recv_blocks = blocks;
      const std::size_t bytes = 8 * to_each;
      return call_on(rank, call, {reinterpret_cast<std::byte*>(data.data()), bytes},
                     {reinterpret_cast<std::byte*>(other.data()), bytes});
    };
    for (const std::size_t to_each : {1, 2, 3, 4}) ASSERT_EQ(exchange(to_each), "");
    std::string& sentence = sentences[static_cast<std::size_t>(rank.rank())];
    const Buffer buffer{reinterpret_cast<std::byte*>(data.data()), 4};
    sentence = rank.rank() == 0 ? exchange(7) : call_on(rank, call_of(Collective::kAllreduce, 1), buffer, buffer);
  });
  for (const std::string& sentence : sentences) {
    EXPECT_NE(sentence.find("rank 0: alltoallv of 14 fp32"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("rank 1: allreduce of 1 fp32"), std::string::npos) << sentence;
  }
}

// Moments of SyncBN among them: more bytes than floats may have in a small call, up to a whole place.
TEST(IntraLines, RecordsOfAnOperatorFillAPlace) {
  UserOp sum;
  sum.function = [](void* inout, const void* in, std::size_t records, void* /*arg*/) {
    for (std::size_t i = 0; i < records * 64; ++i) static_cast<double*>(inout)[i] += static_cast<const double*>(in)[i];
  };
  sum.record_bytes = 512;
  sum.name = "sum";
  Call call = call_of(Collective::kAllreduce, IntraTeam::kEagerPlaceBytes / sum.record_bytes, DType::kRecord);
  call.reduction.user = &sum;
  run_ranks(2, [&](Rank& rank) {
    rank.host.set_patience({.spins = 1 << 30});
    const auto reduce = [&](std::size_t first) {
      std::vector<double> data(call.bytes() / sizeof(double)), result(data.size());
      for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<double>(first + i);
      const Buffer send{reinterpret_cast<std::byte*>(data.data()), call.bytes()};
      const Buffer recv{reinterpret_cast<std::byte*>(result.data()), call.bytes()};
      if (first == 0) {
        EXPECT_EQ(call_on(rank, call, send, recv), "");  // maps the memory
      } else {
        EXPECT_EQ(try_small(rank.host, call, send.data, recv.data), Small::kDone);
      }
      for (std::size_t i = 0; i < data.size(); ++i) EXPECT_EQ(result[i], static_cast<double>(2 * (first + i)));
    };
    for (std::size_t number = 0; number < 4 * IntraTeam::kAhead; ++number) reduce(number);
  });
}

// Sums doubles in place.
class Summing final : public InPlace {
 public:
  explicit Summing(std::size_t first, std::size_t count) : sums(count) {
    std::iota(sums.begin(), sums.end(), static_cast<double>(first) / 3);
  }
  void write(std::byte* contribution) noexcept override {
    ++writes;
    std::memcpy(contribution, sums.data(), sums.size() * sizeof(double));
  }
  void read(std::span<const std::byte* const> contributions) noexcept override {
    ++reads;
    auto* const result = reinterpret_cast<std::byte*>(sums.data());
    Reduction reduction;
    reduction.type = DType::kFloat64;
    CpuCompute().reduce_now({&result, 1}, contributions, sums.size(), reduction,
                            static_cast<int>(contributions.size()));
  }
  std::vector<double> sums;
  int writes = 0, reads = 0;
};

// One of two members writes and reads in place; who comes first, waits, or goes on with run() if `first_waits` is false.
void sum_in_place(Rank& rank, int in_place, int first, bool first_waits, std::atomic<int>& begun) {
  constexpr std::size_t kCount = 40;
  const Call call = call_of(Collective::kAllreduce, kCount, DType::kFloat64);
  const int other = 1 - rank.rank();
  const bool is_first = rank.rank() == first;
  if (is_first) {
    rank.host.set_patience({.spins = first_waits ? 1 << 30 : 0, .yields = 0});
  } else {
    rank.host.set_patience({.spins = 1 << 30});
    while (!rank.host.has_arrived(other, rank.host.next_number())) ::sched_yield();
    while (!first_waits && begun == 0) ::sched_yield();
  }
  Summing mine(static_cast<std::size_t>(rank.rank()), kCount), both(0, kCount);
  const Summing theirs(static_cast<std::size_t>(other), kCount);
  for (std::size_t i = 0; i < kCount; ++i) both.sums[i] = mine.sums[i] + theirs.sums[i];
  std::vector<double> result(kCount, -1);
  const Buffer recv{reinterpret_cast<std::byte*>(result.data()), call.bytes()};
  const bool late = is_first && !first_waits;
  const bool here = rank.rank() == in_place;
  const Small done = here ? try_small(rank.host, call, mine, SmallWait::kPolls, [] {})
                          : try_small(rank.host, call, reinterpret_cast<const std::byte*>(mine.sums.data()), recv.data);
  if (late) begun = 1;
  ASSERT_EQ(done, late ? Small::kBegun : Small::kDone);
  if (late) {
    // What the member has written is used, not what is in the buffer.
    ASSERT_EQ(call_on(rank, call, recv, recv), "");
  }
  EXPECT_EQ(here && !late ? mine.sums : result, both.sums);
  EXPECT_EQ(mine.writes, here ? 1 : 0);
  EXPECT_EQ(mine.reads, here && !late ? 1 : 0);
}

TEST(IntraLines, OneMemberSumsInPlaceBesideOneThatDoesNot) {
  for (const int in_place : {0, 1}) {
    for (const int first : {0, 1}) {
      for (const bool first_waits : {true, false}) {
        SCOPED_TRACE(::testing::Message() << in_place << " in place, " << first << " first, waits: " << first_waits);
        std::atomic<int> begun = 0;
        run_ranks(2, [&](Rank& rank) {
          std::vector<double> data(40);
          const Buffer buffer{reinterpret_cast<std::byte*>(data.data()), data.size() * sizeof(double)};
          const Call call = call_of(Collective::kAllreduce, data.size(), DType::kFloat64);
          ASSERT_EQ(call_on(rank, call, buffer, buffer), "");  // maps the memory
          sum_in_place(rank, in_place, first, first_waits, begun);
        });
      }
    }
  }
}

// The root of a broadcast and those that give in a gather are up to kAhead calls ahead, and not one more.
TEST(IntraLines, WhoNeedsNobodysDataRunsAhead) {
  constexpr int kAhead = static_cast<int>(IntraTeam::kAhead);
  for (const std::size_t count : {std::size_t{3}, IntraTeam::kEagerBytes / 4}) {
    std::atomic<int> ahead{0};
    run_ranks(3, [&](Rank& rank) {
      std::vector<float> data(3 * count), all(3 * count);
      const Buffer one{reinterpret_cast<std::byte*>(data.data()), 4 * count};
      const Buffer three{reinterpret_cast<std::byte*>(all.data()), 12 * count};
      ASSERT_EQ(call_on(rank, call_of(Collective::kAllreduce, count), one, one), "");  // maps memory, and is number 1
      const auto value_of = [](int i, int giver) { return static_cast<float>(100 * i + giver); };
      const auto broadcast = [&](int i) {
        if (rank.rank() == 0) std::fill(data.begin(), data.end(), value_of(i, 0));
        const Call call = call_of(Collective::kBroadcast, count);
        rank.host.set_patience({.spins = 0});
        if (rank.rank() == 0 && i <= kAhead) {
          return try_small(rank.host, call, one.data, nullptr) == Small::kDone ? std::string() : "has not run ahead";
        }
        if (rank.rank() == 0 && i == kAhead + 1 && ahead == 0) {
          EXPECT_EQ(try_small(rank.host, call, one.data, nullptr), Small::kNotServed);
          ahead = 1;
        }
        return call_on(rank, call, rank.rank() == 0 ? one : Buffer{}, rank.rank() == 0 ? Buffer{} : one);
      };
      while (rank.rank() != 0 && ahead == 0) sched_yield();
      for (int i = 1; i <= 3 * kAhead; ++i) {
        ASSERT_EQ(broadcast(i), "") << i;
        ASSERT_EQ(data[count - 1], value_of(i, 0));
      }
      for (int i = 1; i <= 3 * kAhead; ++i) {
        std::fill(data.begin(), data.end(), value_of(i, rank.rank()));
        ASSERT_EQ(call_on(rank, call_of(Collective::kGather, count, DType::kFloat32, ReduceOp::kSum, 1), one,
                          rank.rank() == 1 ? three : Buffer{}),
                  "");
        std::fill(data.begin(), data.end(), -1.0f);  // the caller's again
        for (std::size_t giver = 0; giver < 3 && rank.rank() == 1; ++giver) {
          ASSERT_EQ(all[giver * count], value_of(i, static_cast<int>(giver))) << i;
          ASSERT_EQ(all[(giver + 1) * count - 1], value_of(i, static_cast<int>(giver))) << i;
        }
      }
    });
  }
}

// Two that both take themselves for the root do not wait for each other. The first of their calls that differ is named when
// they meet, also if they call others in between.
TEST(IntraLines, NameTheFirstOfManyCallsThatDiffer) {
  for (const int between : {0, 1, static_cast<int>(IntraTeam::kAhead) - 1}) {
    std::vector<std::string> sentences(2);
    run_ranks(2, [&](Rank& rank) {
      std::vector<float> data(8);
      const Buffer buffer{reinterpret_cast<std::byte*>(data.data()), 12};
      const auto broadcast = [&](int root) {
        return call_on(rank, call_of(Collective::kBroadcast, 3, DType::kFloat32, ReduceOp::kSum, root), buffer, buffer);
      };
      for (int i = 0; i < 40; ++i) ASSERT_EQ(broadcast(i % 2), "");
      ASSERT_EQ(call_on(rank, call_of(Collective::kBarrier, 0), {}, {}), "");  // from here on they may run ahead
      ASSERT_EQ(broadcast(rank.rank()), "");
      for (int i = 0; i < between; ++i) ASSERT_EQ(broadcast(rank.rank()), "");
      sentences[static_cast<std::size_t>(rank.rank())] =
          call_on(rank, call_of(Collective::kAllreduce, 1), buffer.slice(0, 4), buffer.slice(0, 4));
    });
    for (const std::string& sentence : sentences) {
      EXPECT_NE(sentence.find("rank 0: broadcast of 3 fp32, from root 0; rank 1: broadcast of 3 fp32, from root 1"),
                std::string::npos)
          << sentence << " after " << between;
    }
  }
}

// Nothing but broadcasts of two roots: each finds it when it may not run ahead any further.
TEST(IntraLines, WhoOnlySendsLearnsOfADifferenceToo) {
  std::atomic<int> failed{0};
  run_ranks(2, [&failed](Rank& rank) {
    float value = 1;
    const Buffer buffer{reinterpret_cast<std::byte*>(&value), 4};
    std::string sentence;
    for (std::uint64_t i = 0; i <= 2 * IntraTeam::kAhead && sentence.empty(); ++i) {
      sentence = call_on(rank, call_of(Collective::kBroadcast, 1, DType::kFloat32, ReduceOp::kSum, rank.rank()), buffer,
                         buffer);
    }
    EXPECT_NE(sentence.find("rank 0: broadcast of 1 fp32, from root 0; rank 1: broadcast of 1 fp32, from root 1"),
              std::string::npos)
        << sentence;
    ++failed;
    while (failed < 2) sched_yield();
  });
}

}  // namespace
}  // namespace aiacc::intra
