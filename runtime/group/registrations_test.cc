// Registered memory is found by address, and its handle reaches the port that sends from it and places into it.
#include "runtime/group/registrations.h"

#include "runtime/group/calls_test.h"
#include "tests/sim_job.h"
#include "transports/forwarding_port_test.h"

namespace aiacc {
namespace {

using sim::error_of;
using sim::SimJob;

struct RegisteredMemory {
  std::vector<std::byte> bytes = std::vector<std::byte>(1000);
  Buffer part(std::size_t offset, std::size_t length) { return {bytes.data() + offset, length}; }
};

std::uint64_t handle_of(const Registrations& registrations, Buffer buffer) {
  registrations.mark(buffer);
  return buffer.registration;
}

TEST(Registrations, FindsTheRangeThatHasAllOfABuffer) {
  RegisteredMemory memory;
  Registrations known;
  EXPECT_EQ(handle_of(known, memory.part(0, 10)), 0u);
  known.add(7, memory.bytes.data() + 100, 200);
  known.add(8, memory.bytes.data() + 300, 100);
  EXPECT_EQ(handle_of(known, memory.part(100, 200)), 7u);
  EXPECT_EQ(handle_of(known, memory.part(299, 1)), 7u);
  EXPECT_EQ(handle_of(known, memory.part(300, 100)), 8u);
  EXPECT_EQ(handle_of(known, memory.part(99, 2)), 0u) << "begins before it";
  EXPECT_EQ(handle_of(known, memory.part(299, 2)), 0u) << "two ranges side by side are not one";
  EXPECT_EQ(handle_of(known, memory.part(400, 1)), 0u);
  EXPECT_EQ(handle_of(known, memory.part(100, 0)), 0u) << "nothing is in no range";
  known.remove(7);
  EXPECT_EQ(handle_of(known, memory.part(100, 200)), 0u);
  EXPECT_EQ(handle_of(known, memory.part(300, 100)), 8u);
  known.remove(8);
  known.remove(8);
  EXPECT_EQ(handle_of(known, memory.part(300, 100)), 0u);
}

// Against a search through all.
TEST(Registrations, OverlappingRangesAreFoundAsLongAsTheyLast) {
  RegisteredMemory memory;
  sim::Random random(5);
  Registrations known;
  std::map<std::uint64_t, std::pair<std::size_t, std::size_t>> all;
  for (std::uint64_t round = 1; round < 2'000; ++round) {
    if (random.next() % 3 == 0 && !all.empty()) {
      const auto gone = std::next(all.begin(), static_cast<long>(random.next() % all.size()));
      known.remove(gone->first);
      all.erase(gone);
    } else if (all.size() < 12) {
      const std::size_t begin = random.next() % 900, bytes = 1 + random.next() % (1000 - begin);
      known.add(round, memory.bytes.data() + begin, bytes);
      all[round] = {begin, bytes};
    }
    const std::size_t begin = random.next() % 900, bytes = 1 + random.next() % 100;
    const std::uint64_t found = handle_of(known, memory.part(begin, bytes));
    const auto contains = [&](const auto& range) {
      return range.first <= begin && range.first + range.second >= begin + bytes;
    };
    if (found != 0) {
      ASSERT_TRUE(all.contains(found) && contains(all[found]));
    } else {
      for (const auto& [handle, range] : all) ASSERT_FALSE(contains(range));
    }
  }
}

// A port that writes down what it is given to send from and to place into.
class SeeingPort final : public ForwardingPort, private MessageReceiver {
 public:
  struct Seen {
    std::set<std::uint64_t> sent_from, placed_into;  // registrations of payloads
  };
  SeeingPort(std::unique_ptr<MessagePort> port, Seen& seen) : ForwardingPort(std::move(port)), seen_(seen) {}

  void set_receiver(MessageReceiver& receiver) noexcept override {
    receiver_ = &receiver;
    ForwardingPort::set_receiver(*this);
  }
  void post(int to, const MessageHeader& header, std::span<const Buffer> pieces,
            SendCompletion& completion) noexcept override {
    for (const Buffer& piece : pieces) seen_.sent_from.insert(piece.registration);
    ForwardingPort::post(to, header, pieces, completion);
  }

 private:
  Placement on_header(int from, const MessageHeader& header) noexcept override {
    const Placement placement = receiver_->on_header(from, header);
    if (placement.into.bytes > 0) seen_.placed_into.insert(placement.into.registration);
    return placement;
  }
  void on_placed(int from, const MessageHeader& header) noexcept override { receiver_->on_placed(from, header); }
  void on_peer_lost(int rank, std::exception_ptr error) noexcept override { receiver_->on_peer_lost(rank, error); }

  Seen& seen_;
  MessageReceiver* receiver_ = nullptr;
};

TEST(Registrations, AreSeenByThePortInEveryCallOnTheirMemory) {
  SeeingPort::Seen seen[2];
  int ports = 0;
  SimJob job({0, 1}, 1, {}, [&](std::unique_ptr<MessagePort> port) -> std::unique_ptr<MessagePort> {
    return std::make_unique<SeeingPort>(std::move(port), seen[ports++]);
  });
  for (SeeingPort::Seen& each : seen) each = {};
  constexpr std::size_t kCount = 300'000;
  std::vector<float> data[2] = {std::vector<float>(4 * kCount, 1.0f), std::vector<float>(4 * kCount, 1.0f)};
  const auto part = [&data](int rank, std::size_t begin, std::size_t count) {
    return Buffer{reinterpret_cast<std::byte*>(data[rank].data() + begin), count * sizeof(float)};
  };
  const auto run = [&](auto&& start) {
    for (SeeingPort::Seen& each : seen) each = {};
    for (int rank = 0; rank < 2; ++rank) start(rank);
    job.finish();
    for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(error_of(*job[rank].operations.back()).code(), Code::kOk);
  };
  const auto broadcast = [&](int rank) {
    job[rank].start(call_of(Collective::kBroadcast, kCount), part(rank, 0, kCount), part(rank, 0, kCount));
  };
  run(broadcast);
  EXPECT_EQ(seen[0].sent_from, (std::set<std::uint64_t>{0})) << "nothing is registered";

  for (int rank = 0; rank < 2; ++rank) {
    job[rank].context->registrations().add(40 + static_cast<std::uint64_t>(rank), data[rank].data(),
                                           data[rank].size() * sizeof(float));
  }
  run(broadcast);
  EXPECT_EQ(seen[0].sent_from, (std::set<std::uint64_t>{40}));
  EXPECT_EQ(seen[1].placed_into, (std::set<std::uint64_t>{41}));
  run([&](int rank) {
    const Buffer all = part(rank, 0, 2 * kCount);
    const std::size_t mine = static_cast<std::size_t>(rank) * kCount;
    job[rank].start(call_of(Collective::kAllgather, kCount), part(rank, mine, kCount), all);
  });
  EXPECT_EQ(seen[1].sent_from, (std::set<std::uint64_t>{41}));
  EXPECT_EQ(seen[0].placed_into, (std::set<std::uint64_t>{40}));
  run([&](int rank) {
    Call call = call_of(rank == 0 ? Collective::kSend : Collective::kRecv, kCount, 1 - rank);
    job[rank].start(call, rank == 0 ? part(0, 7, kCount) : Buffer{}, rank == 1 ? part(1, 3, kCount) : Buffer{});
  });
  EXPECT_EQ(seen[0].sent_from, (std::set<std::uint64_t>{40}));
  EXPECT_EQ(seen[1].placed_into, (std::set<std::uint64_t>{41}));
  run([&](int rank) {  // its inputs are reduced into scratch memory, its tensors are sent as they are
    const Tensor tensors[] = {{part(rank, 0, kCount), part(rank, 0, kCount)},
                              {part(rank, kCount, kCount), part(rank, kCount, kCount)}};
    Call call = call_of(Collective::kGroupedAllreduce, 2 * kCount);
    call.tensors = tensors;
    job[rank].start(call, {}, {});
  });
  EXPECT_TRUE(seen[0].sent_from.contains(40));
  EXPECT_TRUE(seen[1].placed_into.contains(41));

  for (int rank = 0; rank < 2; ++rank) {
    job[rank].context->registrations().remove(40 + static_cast<std::uint64_t>(rank));
  }
  run(broadcast);
  EXPECT_EQ(seen[0].sent_from, (std::set<std::uint64_t>{0}));
}

}  // namespace
}  // namespace aiacc
