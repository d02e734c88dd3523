// In virtual time and in any placement: operators that do not commute, grouped allreduces, messages from any rank, one rounding
// for 16-bit floats between hosts, and that ranks which disagree are all told so within a second, also where nobody sends.
#include "runtime/group/calls_test.h"
#include "tests/affine_op.h"
#include "tests/exact_inputs.h"
#include "tests/sim_job.h"

namespace aiacc::sim {
namespace {

using affine::Map;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Placement = std::vector<std::uint32_t>;

class SurfaceHosts : public ::testing::TestWithParam<Placement> {
 protected:
  void expect_well(SimJob& job) {
    job.finish();
    for (auto& rank : job.ranks) {
      for (const auto& operation : rank->operations) EXPECT_EQ(error_of(*operation).message(), "");
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Placements, SurfaceHosts,
                         ::testing::Values(Placement{0, 0, 0}, Placement{0, 1}, Placement{0, 1, 2, 3, 4},
                                           Placement{0, 0, 1, 1}, Placement{0, 1, 0, 1},
                                           Placement{1, 0, 2, 0, 1, 1, 2}));

TEST_P(SurfaceHosts, OperatorsThatDoNotCommuteCombineInTheOrderOfRanks) {
  const UserOp op{.function = &affine::combine, .record_bytes = sizeof(Map), .name = "affine"};
  for (const std::size_t count : {1, 7, 1000, 30'001}) {
    SimJob job(GetParam());
    const auto n = static_cast<std::size_t>(job.size());
    const int root = job.size() / 2;
    std::deque<std::vector<Map>> inputs, sums, parts, results;
    for (int rank = 0; rank < job.size(); ++rank) {
      auto& input = inputs.emplace_back(affine::input(rank, count * n));
      auto make = [&](Collective kind, std::size_t length) {
        Call call = call_of(kind, length, root);
        call.reduction.type = DType::kRecord;
        call.reduction.user = &op;
        return call;
      };
      sums.emplace_back(count * n);
      parts.emplace_back(count);
      results.emplace_back(rank == root ? count * n : 0);
      job[rank].start(make(Collective::kAllreduce, count * n), buffer_of(input), buffer_of(sums.back()));
      job[rank].start(make(Collective::kReduceScatter, count), buffer_of(input), buffer_of(parts.back()));
      job[rank].start(make(Collective::kReduce, count * n), buffer_of(input), buffer_of(results.back()));
    }
    expect_well(job);
    const std::vector<Map> all = affine::composed(job.size(), count * n);
    for (std::size_t rank = 0; rank < n; ++rank) {
      EXPECT_EQ(sums[rank], all) << count;
      EXPECT_TRUE(std::equal(parts[rank].begin(), parts[rank].end(), all.begin() + static_cast<long>(count * rank)));
    }
    EXPECT_EQ(results[static_cast<std::size_t>(root)], all) << count;
  }
}

// Sums of whole numbers, records that are no power of two.
struct Moments {
  std::uint32_t count, sum, squares;
  bool operator==(const Moments&) const = default;
};
void add(void* inout, const void* in, std::size_t records, void*) {
  auto* moments = static_cast<Moments*>(inout);
  const auto* others = static_cast<const Moments*>(in);
  for (std::size_t i = 0; i < records; ++i) {
    moments[i].count += others[i].count;
    moments[i].sum += others[i].sum;
    moments[i].squares += others[i].squares;
  }
}

TEST_P(SurfaceHosts, OperatorsThatCommute) {
  const UserOp op{.function = &add, .record_bytes = sizeof(Moments), .commutative = true, .name = "moments"};
  for (const std::size_t count : {1, 1000, 60'001}) {
    SimJob job(GetParam());
    const auto n = static_cast<std::uint32_t>(job.size());
    std::deque<std::vector<Moments>> sums, results;
    for (std::uint32_t rank = 0; rank < n; ++rank) {
      const Moments mine{1, rank, rank * rank};
      auto& data = sums.emplace_back(count, mine);
      auto& result = results.emplace_back(count, mine);
      Call call = call_of(Collective::kAllreduce, count, job.size() - 1);
      call.reduction.type = DType::kRecord;
      call.reduction.user = &op;
      job[static_cast<int>(rank)].start(call, buffer_of(data), buffer_of(data));
      call.kind = Collective::kReduce;
      job[static_cast<int>(rank)].start(call, buffer_of(result), buffer_of(result));
    }
    expect_well(job);
    const Moments all{n, n * (n - 1) / 2, n * (n - 1) * (2 * n - 1) / 6};
    for (const auto& sum : sums) EXPECT_EQ(sum, std::vector<Moments>(count, all)) << count;
    EXPECT_EQ(results.back(), std::vector<Moments>(count, all)) << count;
  }
}

TEST_P(SurfaceHosts, GroupedTensorsAreReducedAsOneOperation) {
  SimJob job(GetParam());
  const std::vector<std::size_t> counts = {0, 3, 0, 200'001, 64'000, 64'000, 64'000, 64'000, 64'000, 1, 9};
  std::deque<std::vector<float>> data;
  const Buffer nothing;
  for (int rank = 0; rank < job.size(); ++rank) {
    std::vector<Tensor> tensors;
    Call call = call_of(Collective::kGroupedAllreduce, 0);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      auto& tensor = data.emplace_back(counts[i], static_cast<float>(rank + static_cast<int>(i)));
      tensors.push_back({buffer_of(tensor), buffer_of(tensor)});
      call.count += counts[i];
    }
    call.tensors = tensors;
    job[rank].start(call, nothing, nothing);
    job[rank].sum(10);
  }
  expect_well(job);
  const int n = job.size();
  for (std::size_t k = 0; k < data.size(); ++k) {
    const int i = static_cast<int>(k % counts.size());
    const int sum = n * i + n * (n - 1) / 2;
    const auto expected = static_cast<float>(sum);
    EXPECT_EQ(std::count(data[k].begin(), data[k].end(), expected), static_cast<long>(data[k].size())) << i;
  }
}

TEST_P(SurfaceHosts, MessagesComeFromAnyAndPassRoundACircle) {
  SimJob job(GetParam());
  const int n = job.size();
  const Buffer nothing;
  std::deque<std::vector<float>> given, got;
  std::deque<int> senders;
  for (int rank = 0; rank < n; ++rank) {
    Call circle = call_of(Collective::kSendrecv, 40'000, (rank + 1) % n);
    circle.recv_count = 40'000;
    circle.from = (rank + n - 1) % n;
    given.emplace_back(40'000, static_cast<float>(rank));
    got.emplace_back(40'000, -1.0f);
    job[rank].start(circle, buffer_of(given.back()), buffer_of(got.back()));
  }
  // Half of the receives are there before the messages.
  std::deque<std::vector<float>> taken;
  const auto take = [&] {
    Call any = call_of(Collective::kRecvAny, 20'000);
    any.tag = 3;
    any.sender = &senders.emplace_back(-1);
    job[0].start(any, nothing, buffer_of(taken.emplace_back(20'000, -1.0f)));
  };
  for (int i = 0; i < n; ++i) take();
  for (int rank = 0; rank < n; ++rank) {
    for (int i = 0; i < 2; ++i) {
      Call send = call_of(Collective::kSend, 20'000, 0);
      send.tag = 3;
      auto& data = given.emplace_back(20'000, static_cast<float>(10 * rank + i));
      job[rank].start(send, buffer_of(data), nothing);
    }
  }
  for (int i = 0; i < n; ++i) take();
  expect_well(job);
  for (int rank = 0; rank < n; ++rank) EXPECT_EQ(got[static_cast<std::size_t>(rank)].back(), (rank + n - 1) % n);
  std::vector<int> next(static_cast<std::size_t>(n), 0);
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const int from = senders[i];
    ASSERT_GE(from, 0);
    EXPECT_EQ(taken[i].front(), static_cast<float>(10 * from + next[static_cast<std::size_t>(from)]++));
    EXPECT_EQ(taken[i].back(), taken[i].front());
  }
}

TEST(SurfaceBetween, SixteenBitFloatsAreRoundedOnce) {
  for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
      for (const std::size_t count : {3, 1000, 100'003}) {
        SimJob job({0, 1, 2, 3, 4});
        Call call = call_of(Collective::kAllreduce, count);
        call.reduction.type = type;
        call.reduction.op = op;
        std::vector<exact::Bytes> inputs, results;
        for (int rank = 0; rank < job.size(); ++rank) {
          exact::Bytes& input = inputs.emplace_back(count * 2);
          for (std::size_t i = 0; i < count; ++i) {
            const float value = 0.1f + static_cast<float>((i * 13 + static_cast<std::size_t>(rank) * 7) % 100) / 3.0f;
            const std::uint16_t word =
                type == DType::kFloat16 ? reference::float_to_half(value) : reference::float_to_bfloat(value);
            std::memcpy(input.data() + i * 2, &word, 2);
          }
          results.emplace_back(count * 2);
        }
        for (int rank = 0; rank < job.size(); ++rank) {
          const auto at = static_cast<std::size_t>(rank);
          job[rank].start(call, exact::buffer_of(inputs[at]), exact::buffer_of(results[at]));
        }
        job.finish();
        const exact::Bytes expected = exact::reduced(inputs, call, count);
        for (const exact::Bytes& result : results) EXPECT_TRUE(result == expected) << call.describe();
      }
    }
  }
}

// --- disagreements over hosts ------------------------------------------------------------------------------------------

struct Disagreement {
  const char* name;
  Call first;  // of rank 0
  Call other;  // of all others
  const char* words[2];
};

std::vector<Disagreement> disagreements() {
  std::vector<Disagreement> all;
  const auto rooted = [&](const char* name, Collective kind, std::size_t count, const char* one, const char* two) {
    // Rank 0 believes that rank 1 is root, everybody else that rank 0 is.
    all.push_back({name, call_of(kind, count, 1), call_of(kind, count, 0), {one, two}});
  };
  rooted("broadcast", Collective::kBroadcast, 10, "from root 1", "from root 0");
  rooted("large broadcast", Collective::kBroadcast, 100'000, "from root 1", "from root 0");
  rooted("scatter", Collective::kScatter, 10, "from root 1", "from root 0");
  rooted("large reduce", Collective::kReduce, 100'000, "to root 1", "to root 0");
  rooted("large gather", Collective::kGather, 100'000, "to root 1", "to root 0");
  all.push_back({"another collective",
                 call_of(Collective::kBarrier, 0),
                 call_of(Collective::kBroadcast, 10, 0),
                 {"barrier", "broadcast of 10"}});
  all.push_back({"nothing to do",
                 call_of(Collective::kBroadcast, 0, 1),
                 call_of(Collective::kBroadcast, 10, 1),
                 {"broadcast of 0", "broadcast of 10"}});
  all.push_back({"receivers only",
                 call_of(Collective::kScatter, 10, 1),
                 call_of(Collective::kBroadcast, 10, 0),
                 {"scatter of 10", "broadcast of 10"}});
  return all;
}

class Disagree : public ::testing::TestWithParam<Placement> {};
INSTANTIATE_TEST_SUITE_P(Placements, Disagree,
                         ::testing::Values(Placement{0, 1}, Placement{0, 1, 2, 3}, Placement{0, 1, 0, 1},
                                           Placement{0, 0, 1, 1, 2}));

TEST_P(Disagree, AllAreToldWithinASecondWithBothSides) {
  for (const Disagreement& one : disagreements()) {
    SimJob job(GetParam());
    std::deque<std::vector<float>> data;
    for (int rank = 0; rank < job.size(); ++rank) {
      const Call& call = rank == 0 ? one.first : one.other;
      auto& mine = data.emplace_back(std::max<std::size_t>(call.count, 1) * static_cast<std::size_t>(job.size()));
      const bool root = rank == call.root;
      const std::size_t all = call.count * sizeof(float) * static_cast<std::size_t>(job.size());
      const std::size_t block = call.count * sizeof(float);
      Buffer whole = buffer_of(mine), part = whole;
      whole.bytes = call.kind == Collective::kGather || call.kind == Collective::kScatter ? all : block;
      part.bytes = block;
      const Buffer nothing;
      Buffer send = part, recv = root ? whole : nothing;
      if (call.kind == Collective::kScatter) std::swap(send, recv);
      if (call.kind == Collective::kBroadcast) send = recv = part;
      if (call.kind == Collective::kBarrier) send = recv = nothing;
      job[rank].start(call, send, recv);
    }
    job.finish();
    EXPECT_LT(job.elapsed(), seconds(1)) << one.name;
    int told = 0;
    for (int rank = 0; rank < job.size(); ++rank) {
      Error error = error_of(*job[rank].operations.front());
      if (error.code() == Code::kOk) {  // it had nothing to wait for: its next call says it
        job[rank].sum(1);
        job.finish();
        error = error_of(*job[rank].operations.back());
      }
      EXPECT_EQ(error.code(), Code::kMismatch) << one.name << ", rank " << rank << ": " << error.message();
      for (const char* word : one.words) {
        EXPECT_NE(error.message().find(word), std::string::npos)
            << one.name << ", rank " << rank << ": " << error.message();
      }
      ++told;
    }
    EXPECT_EQ(told, job.size());
  }
}

TEST_P(Disagree, ABlockThatItsEndsCountDifferently) {
  SimJob job(GetParam());
  std::deque<std::vector<float>> data;
  const auto n = static_cast<std::size_t>(job.size());
  for (int rank = 0; rank < job.size(); ++rank) {
    std::vector<Extent> out, in;
    for (std::size_t other = 0; other < n; ++other) {
      // The last rank has one element too many for rank 0.
      out.push_back({other * 10, rank + 1 == job.size() && other == 0 ? 5u : 4u});
      in.push_back({other * 10, 4});
    }
    Call call = call_of(Collective::kAlltoall, 4 * n);
    call.uneven = true;
    call.blocks = out;
    call.recv_blocks = in;
    auto& send = data.emplace_back(10 * n);
    auto& recv = data.emplace_back(10 * n);
    job[rank].start(call, buffer_of(send), buffer_of(recv));
  }
  job.finish();
  EXPECT_LT(job.elapsed(), seconds(1));
  for (int rank = 0; rank < job.size(); ++rank) {
    const Error error = error_of(*job[rank].operations.front());
    if (error.code() == Code::kOk) continue;  // it was done with everybody before
    EXPECT_EQ(error.code(), Code::kMismatch) << error.message();
    EXPECT_NE(error.message().find("sends rank 0"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("rank 0 expects"), std::string::npos) << error.message();
  }
  EXPECT_EQ(error_of(*job[0].operations.front()).code(), Code::kMismatch);
}

}  // namespace
}  // namespace aiacc::sim
