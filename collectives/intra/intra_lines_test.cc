// What members write into their control lines: payloads of every length, and what they say of their calls.
#include <gtest/gtest.h>

#include <cstdint>
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

}  // namespace
}  // namespace aiacc::intra
