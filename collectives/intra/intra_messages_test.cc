// Messages between two ranks of a host: every size and kind of memory, any order of tags, many unexpected ones.
#include "collectives/intra/intra_messages_now.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "collectives/intra/messages_test.h"
#include "collectives/intra/select.h"

namespace aiacc::intra {
namespace {

TEST(IntraMessages, CarriesEverySizeFromEveryMemory) {
  run_posts(2, [](Rank& rank, IntraMessages& post) {
    int value = 0;
    for (const std::size_t count : {0, 1, 255, 256, 257, 16'384, 16'385, 100'000}) {
      for (const bool shared : {false, true}) {
        Batch batch(rank, post);
        value += 1'000'000;
        if (rank.rank() == 0) {
          batch.send(1, 3, count, value, shared);
          batch.finish();
        } else {
          const std::int32_t* data = batch.recv(0, 3, count);
          batch.finish();
          expect_message(data, count, value);
        }
      }
    }
  });
}

TEST(IntraMessages, WhatNoSenderWritesIsAnErrorOfTheSender) {
  struct Forged {
    std::uint64_t first, posted;
    const char* says;
  };
  for (const Forged& forged : {Forged{8, 1, "names a message at 7, where none begins"},
                               {0, 1, "names a message at 18446744073709551615, where none begins"},
                               {(std::uint64_t{1} << 50) + 1, 1, "names 32 bytes at 1125899906842624"},
                               {1, std::uint64_t{1} << 40, "says that 1099511627776 messages were sent, of which 0"}}) {
    run_posts(2, [&forged](Rank& rank, IntraMessages& post) {
      if (rank.rank() == 0) {
        constexpr std::uint32_t kPostedLine = 1, kToOne = 1;  // the line after that of the first messages; the word
        const std::uint64_t key = Hash64().add(rank.team.view->id()).add("post").value() | 1;
        const std::uint32_t lines = rank.domain.find_lines(0, key, 6).value();
        rank.domain.own_line(lines).word[kToOne].store(forged.first);
        rank.domain.publish(lines + kPostedLine, kToOne, forged.posted);
        return;
      }
      Batch batch(rank, post);
      batch.recv(0, 1, 1);
      try {
        batch.finish();
        ADD_FAILURE() << "it was taken";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kProtocol);
        EXPECT_NE(error.message().find(forged.says), std::string::npos) << error.message();
      }
    });
  }
}

TEST(IntraMessages, BothWaysAtOnce) {
  run_posts(3, [](Rank& rank, IntraMessages& post) {
    Batch batch(rank, post);
    std::vector<const std::int32_t*> received;
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == rank.rank()) continue;
      batch.send(peer, 1, 50'000, rank.rank() * 100);
      received.push_back(batch.recv(peer, 1, 50'000));
    }
    batch.finish();
    expect_message(received[0], 50'000, (rank.rank() == 0 ? 1 : 0) * 100);
    expect_message(received[1], 50'000, (rank.rank() == 2 ? 1 : 2) * 100);
  });
}

TEST(IntraMessages, MatchesTagsInAnyOrderAndEqualOnesInTheirs) {
  run_posts(2, [](Rank& rank, IntraMessages& post) {
    constexpr std::uint32_t kTags = 20;
    for (const std::size_t count : {5, 3'000}) {
      Batch batch(rank, post);
      if (rank.rank() == 0) {
        for (std::uint32_t tag = 0; tag < kTags; ++tag) batch.send(1, tag / 2, count, static_cast<int>(tag) * 10);
        batch.finish();
        continue;
      }
      std::vector<const std::int32_t*> received(kTags);
      for (std::uint32_t tag = kTags / 2; tag-- > 0;) {
        received[2 * tag] = batch.recv(0, tag, count);
        received[2 * tag + 1] = batch.recv(0, tag, count);
      }
      batch.finish();
      for (std::uint32_t tag = 0; tag < kTags; ++tag) expect_message(received[tag], count, static_cast<int>(tag) * 10);
    }
  });
}

struct Receive final : IntraMessages::Posted {
  Receive(int from, const PlainCall& call, std::int32_t* into)
      : Posted(from, call, {reinterpret_cast<std::byte*>(into), sizeof *into}) {}
};
struct Told final : IntraMessages::Posted::Owner {
  void received(IntraMessages::Posted& receive, std::exception_ptr error) noexcept override {
    order.push_back(&receive);
    if (error) failed.push_back(&receive);
  }
  void received_all(std::span<IntraMessages::Posted* const> receives) noexcept override {
    together = std::max(together, receives.size());
    order.insert(order.end(), receives.begin(), receives.end());
  }
  std::vector<IntraMessages::Posted*> order, failed;
  std::size_t together = 0;
};

// Of receives whose messages are found together their owner hears together, in their order, and of a failed one in its place.
TEST(IntraMessages, TellsOfPostedReceivesInTheirOrder) {
  constexpr int kMessages = 200, kTooLong = 100;
  std::barrier turn(2);
  run_posts(2, [&turn](Rank& rank, IntraMessages& post) {
    const int peer = 1 - rank.rank();
    if (rank.rank() == 0) {
      turn.arrive_and_wait();
      for (int i = 0; i < kMessages; ++i) {
        const std::int32_t values[] = {i, i};
        const std::size_t count = i == kTooLong ? 2 : 1;
        const Buffer at{reinterpret_cast<std::byte*>(const_cast<std::int32_t*>(values)), count * sizeof values[0]};
        EXPECT_TRUE(post.send_now(peer, PlainCall::of(message(Collective::kSend, peer, 5, count)), at));
      }
      turn.arrive_and_wait();
      return;
    }
    Told told;
    std::deque<Receive> receives;
    std::vector<std::int32_t> values(kMessages, -1);
    const PlainCall call = PlainCall::of(message(Collective::kRecv, peer, 5, 1));
    for (int i = 0; i < kMessages; ++i) {
      ASSERT_TRUE(post.prepare_to_post(peer, call));
      post.post(receives.emplace_back(peer, call, &values[static_cast<std::size_t>(i)]), told);
    }
    turn.arrive_and_wait();
    turn.arrive_and_wait();
    rank.loop.run_until([&told] { return told.order.size() == kMessages; });
    ASSERT_EQ(told.failed.size(), 1u);
    EXPECT_EQ(told.failed[0], &receives[kTooLong]);
    for (std::size_t i = 0; i < kMessages; ++i) {
      ASSERT_EQ(told.order[i], &receives[i]) << i;
      EXPECT_EQ(values[i], i == kTooLong ? -1 : static_cast<std::int32_t>(i));
    }
    EXPECT_GT(told.together, 1u);
  });
}

// What ends in place: every send, and a receive whose message is there. It overtakes none that waits.
TEST(IntraMessages, SendsAndReceivesInPlaceWhereNothingHasToWait) {
  std::barrier turn(2);
  run_posts(2, [&turn](Rank& rank, IntraMessages& post) {
    const int peer = 1 - rank.rank();
    std::int32_t value = 0;
    const Buffer at{reinterpret_cast<std::byte*>(&value), sizeof value};
    if (rank.rank() == 0) {
      turn.arrive_and_wait();
      for (value = 1; value <= 3; ++value)
        EXPECT_TRUE(post.send_now(peer, PlainCall::of(message(Collective::kSend, peer, 5, 1)), at));
      turn.arrive_and_wait();
      return;
    }
    Batch batch(rank, post);
    EXPECT_FALSE(post.recv_now(peer, PlainCall::of(message(Collective::kRecv, peer, 5, 1)), at)) << "nothing is there";
    const std::int32_t* waited = batch.recv(peer, 5, 1);
    turn.arrive_and_wait();
    turn.arrive_and_wait();
    EXPECT_FALSE(post.recv_now(peer, PlainCall::of(message(Collective::kRecv, peer, 6, 1)), at))
        << "it has another tag";
    EXPECT_FALSE(post.recv_now(peer, PlainCall::of(message(Collective::kRecv, peer, 5, 2)), at))
        << "it is shorter: an operation says so";
    EXPECT_TRUE(post.recv_now(peer, PlainCall::of(message(Collective::kRecv, peer, 5, 1)), at));
    EXPECT_EQ(value, 2);
    EXPECT_TRUE(post.recv_now(peer, PlainCall::of(message(Collective::kRecv, peer, 5, 1)), at));
    EXPECT_EQ(value, 3);
    EXPECT_FALSE(post.recv_now(peer, PlainCall::of(message(Collective::kRecv, peer, 5, 1)), at));
    batch.finish();
    EXPECT_EQ(*waited, 1);
  });
}

// What a blocking recv does before it becomes an operation: it polls as long as its caller goes on to wait.
TEST(IntraMessages, ReceivesInPlaceWhatComesSoon) {
  std::barrier turn(2);
  run_posts(2, [&turn](Rank& rank, IntraMessages& post) {
    const int peer = 1 - rank.rank();
    std::int32_t value = 0;
    const Buffer at{reinterpret_cast<std::byte*>(&value), sizeof value};
    const auto sends = [&](std::int32_t what, std::uint32_t tag) {
      value = what;
      EXPECT_TRUE(post.send_now(peer, PlainCall::of(message(Collective::kSend, peer, tag, 1)), at));
    };
    if (rank.rank() == 0) {
      turn.arrive_and_wait();
      sends(3, 6);
      sends(4, 5);
      turn.arrive_and_wait();
      sends(5, 5);
      sends(6, 5);
      turn.arrive_and_wait();
      return;
    }
    const PlainCall five = PlainCall::of(message(Collective::kRecv, peer, 5, 1));
    int waits = 0;
    EXPECT_FALSE(post.recv_soon(peer, five, at, [&waits] { return ++waits < 10; })) << "nobody has sent";
    EXPECT_EQ(waits, 10);
    bool asked = false;
    EXPECT_TRUE(post.recv_soon(peer, five, at, [&] {
      // From now on there is a message of another tag, and soon one of this.
      if (!std::exchange(asked, true)) turn.arrive_and_wait();
      return true;
    }));
    EXPECT_EQ(value, 4);
    EXPECT_TRUE(asked);
    const PlainCall longer = PlainCall::of(message(Collective::kRecv, peer, 6, 2));
    EXPECT_FALSE(post.recv_soon(peer, longer, at, [] { return true; })) << "it is shorter: an operation says so";
    Batch batch(rank, post);
    const std::int32_t* first = batch.recv(peer, 5, 1);
    EXPECT_FALSE(post.recv_soon(peer, five, at, [] { return true; })) << "another recv of this tag waits";
    turn.arrive_and_wait();
    batch.finish();
    EXPECT_EQ(*first, 5);
    EXPECT_TRUE(post.recv_soon(peer, five, at, [] { return true; }));
    EXPECT_EQ(value, 6);
    turn.arrive_and_wait();
  });
}

// Memory of messages that were received is kept, but not where another one needs the room.
TEST(IntraMessages, GiveUpWhatTheyKeepForALongMessage) {
  std::barrier turn(2);
  run_posts(2, [&turn](Rank& rank, IntraMessages& post) {
    const int peer = 1 - rank.rank();
    constexpr std::size_t kMiB = 1 << 20;
    std::vector<std::byte> data(45 * kMiB);  // of a slice of 64 MiB
    for (const std::size_t bytes : {std::size_t{4}, 10 * kMiB, 10 * kMiB, std::size_t{4}, data.size()}) {
      const Collective kind = rank.rank() == 0 ? Collective::kSend : Collective::kRecv;
      const PlainCall call = PlainCall::of(message(kind, peer, 5, bytes, DType::kUInt8));
      const Buffer at{data.data(), bytes};
      if (rank.rank() == 0) {
        data[bytes - 1] = static_cast<std::byte>(bytes % 251);
        EXPECT_TRUE(post.send_now(peer, call, at)) << bytes;
      }
      turn.arrive_and_wait();
      if (rank.rank() == 1) {
        EXPECT_TRUE(post.recv_now(peer, call, at)) << bytes;
        EXPECT_EQ(data[bytes - 1], static_cast<std::byte>(bytes % 251));
      }
      turn.arrive_and_wait();
    }
  });
}

// A receive waits only where nothing else is to be done for it: its message may be there, or it may fail.
TEST(IntraMessages, AReceiveOnlyWaitsWhileNothingIsThereOrBroken) {
  std::barrier turn(2);
  run_posts(2, [&turn](Rank& rank, IntraMessages& post) {
    const int peer = 1 - rank.rank();
    std::int32_t value = 7;
    const Buffer at{reinterpret_cast<std::byte*>(&value), sizeof value};
    if (rank.rank() == 0) {
      turn.arrive_and_wait();
      EXPECT_TRUE(post.send_now(peer, PlainCall::of(message(Collective::kSend, peer, 6, 1)), at));
      turn.arrive_and_wait();
      turn.arrive_and_wait();
      // The number of messages becomes what it cannot be, and later what it was.
      const std::uint64_t key = Hash64().add(rank.team.view->id()).add("post").value() | 1;
      const std::uint32_t posted = rank.domain.find_lines(0, key, 6).value() + 1;
      rank.domain.publish(posted, 1, std::uint64_t{1} << 40);
      turn.arrive_and_wait();
      turn.arrive_and_wait();
      rank.domain.publish(posted, 1, 1);
      turn.arrive_and_wait();
      return;
    }
    const PlainCall five = PlainCall::of(message(Collective::kRecv, peer, 5, 1));
    const PlainCall six = PlainCall::of(message(Collective::kRecv, peer, 6, 1));
    EXPECT_FALSE(post.only_waits(peer, five)) << "nobody listens to that member yet";
    ASSERT_TRUE(post.prepare_to_post(peer, five));
    EXPECT_TRUE(post.only_waits(peer, five));
    PlainCall too_long = five;
    too_long.count = std::size_t{UINT32_MAX} + 1;
    EXPECT_FALSE(post.only_waits(peer, too_long)) << "a Posted cannot say how long it is";
    turn.arrive_and_wait();
    turn.arrive_and_wait();
    EXPECT_FALSE(post.only_waits(peer, five)) << "a message came";
    EXPECT_FALSE(post.recv_now(peer, five, at));
    EXPECT_FALSE(post.only_waits(peer, six)) << "its message is kept";
    EXPECT_TRUE(post.recv_now(peer, six, at));
    EXPECT_TRUE(post.only_waits(peer, five));
    Told told;
    Receive receive(peer, five, &value);
    post.post(receive, told);
    turn.arrive_and_wait();
    turn.arrive_and_wait();
    rank.loop.run_until([&told] { return !told.failed.empty(); });
    turn.arrive_and_wait();
    turn.arrive_and_wait();
    EXPECT_FALSE(post.only_waits(peer, five)) << "that member has said what cannot be";
  });
}

TEST(IntraMessages, KeepsTheOrderOfManyMessages) {
  run_posts(2, [](Rank& rank, IntraMessages& post) {
    constexpr int kMessages = 500;
    Batch batch(rank, post);
    std::vector<const std::int32_t*> received;
    for (int i = 0; i < kMessages; ++i) {
      if (rank.rank() == 0) {
        batch.send(1, 9, 2, i);
      } else {
        received.push_back(batch.recv(0, 9, 2));
      }
    }
    batch.finish();
    for (std::size_t i = 0; i < received.size(); ++i) expect_message(received[i], 2, static_cast<int>(i));
  });
}

// The first free offset in this rank's slice.
std::uint64_t first_room(HostDomain& domain) {
  const HostRange range = domain.allocate(1);
  domain.free(range);
  return range.offset;
}

// Eight rounds, which reuse freed memory.
TEST(IntraMessages, ShortMessagesThatNobodyHasAskedForShareMemory) {
  constexpr int kMessages = 4096;
  std::barrier turn(2);
  run_posts(2, [&](Rank& rank, IntraMessages& post) {
    const std::uint64_t before = first_room(rank.domain);
    for (int wave = 0; wave < 8; ++wave) {
      Batch batch(rank, post);
      if (rank.rank() == 0) {
        for (int i = 0; i < kMessages; ++i) batch.send(1, static_cast<std::uint32_t>(i), 1, i);
        batch.finish();
        EXPECT_LE(first_room(rank.domain) - before, std::uint64_t{1} << 20) << "a header and a word are 64 bytes";
        turn.arrive_and_wait();
      } else {
        turn.arrive_and_wait();
        std::vector<const std::int32_t*> got;
        for (int i = kMessages - 1; i >= 0; --i) got.push_back(batch.recv(0, static_cast<std::uint32_t>(i), 1));
        batch.finish();
        for (int i = 0; i < kMessages; ++i) EXPECT_EQ(*got[static_cast<std::size_t>(i)], kMessages - 1 - i);
      }
      turn.arrive_and_wait();
    }
  });
}

// Some share a slab, some do not fit into the rest of a slab, some have memory of their own.
TEST(IntraMessages, ManyOfEveryLengthKeepTheirBytes) {
  constexpr std::size_t kMessages = 600;
  const auto length = [](std::size_t i) { return i * i * 7919 % 20'000; };
  run_posts(2, [&](Rank& rank, IntraMessages& post) {
    for (int round = 0; round < 2; ++round) {
      Batch batch(rank, post);
      std::vector<const std::int32_t*> got;
      for (std::size_t i = 0; i < kMessages; ++i) {
        if (rank.rank() == 0) {
          batch.send(1, 2, length(i), static_cast<int>(i) * 100'000);
        } else {
          got.push_back(batch.recv(0, 2, length(i)));
        }
        if (round == 1) batch.finish();  // one at a time
      }
      batch.finish();
      for (std::size_t i = 0; i < got.size(); ++i) expect_message(got[i], length(i), static_cast<int>(i) * 100'000);
    }
  });
}

// A waiting recv does not block collectives, and a waiting collective does not block messages.
TEST(IntraMessages, MessagesAndCollectivesDoNotWaitForEachOther) {
  run_posts(2, [](Rank& rank, IntraMessages& post) {
    Stop stop;
    Batch batch(rank, post);
    const std::int32_t* data = rank.rank() == 1 ? batch.recv(0, 4, 7) : nullptr;
    Operation barrier{rank.team, message(Collective::kBarrier, 0, 0, 0), 1, stop, {}, {}};
    rank.loop.run(run(barrier));
    if (rank.rank() == 0) batch.send(1, 4, 7, 77);
    batch.finish();
    if (data != nullptr) expect_message(data, 7, 77);
  });
}

TEST(IntraMessages, ADifferenceIsNamed) {
  run_posts(2, [](Rank& rank, IntraMessages& post) {
    Batch batch(rank, post);
    if (rank.rank() == 0) {
      batch.send(1, 4, 7, 0);
      batch.finish();
      return;
    }
    batch.recv(0, 4, 8);
    try {
      batch.finish();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kMismatch);
      EXPECT_NE(error.message().find("rank 0 sent 28 bytes of int32 with tag 4"), std::string::npos) << error.message();
      EXPECT_NE(error.message().find("rank 1 expects 32 bytes of int32"), std::string::npos) << error.message();
    }
  });
}

}  // namespace
}  // namespace aiacc::intra
