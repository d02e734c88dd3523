// Long messages that stay in the sender's memory until they are read.
#include "collectives/intra/loans.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "collectives/intra/messages_test.h"

namespace aiacc::intra {
namespace {

constexpr std::size_t kMiB = 1 << 20;

// A send or recv of bytes whose Stop is the test's.
struct LongMessage {
  LongMessage(Rank& rank, IntraMessages& post, Collective kind, std::uint32_t tag, Buffer memory)
      : operation{rank.team, message(kind, 1 - rank.rank(), tag, memory.bytes, DType::kUInt8), 0, stop, memory, memory},
        task(kind == Collective::kSend ? post.send(operation) : post.recv(operation)) {
    task.start();
  }
  void finish(Rank& rank) {
    rank.loop.run_until([this] { return task.done(); });
    task.take();
  }
  Stop stop;
  Operation operation;
  Task<void> task;
};

Buffer buffer_of(std::vector<std::byte>& bytes) { return {bytes.data(), bytes.size()}; }

std::size_t count_of(const std::vector<std::byte>& bytes, int value) {
  return static_cast<std::size_t>(std::count(bytes.begin(), bytes.end(), static_cast<std::byte>(value)));
}

// 96 MiB from each rank to the other, where each rank has 64 MiB of shared memory.
TEST(Loans, NeedNoMemoryOfTheirOwn) {
  std::barrier turn(2);
  run_posts(2, [&turn](Rank& rank, IntraMessages& post) {
    post.keep_no_place();
    constexpr std::size_t kMessages = 96, kCount = kMiB / sizeof(std::int32_t);
    Batch batch(rank, post);
    std::vector<const std::int32_t*> got;
    for (std::size_t i = 0; i < kMessages; ++i) got.push_back(batch.recv(1 - rank.rank(), 7, kCount));
    turn.arrive_and_wait();
    for (std::size_t i = 0; i < kMessages; ++i) {
      const bool shared = i % 4 == 0;  // memory of the slice itself is read directly
      batch.send(1 - rank.rank(), 7, kCount, static_cast<int>(i) * 1000 + rank.rank(), shared);
    }
    batch.finish();
    for (std::size_t i = 0; i < kMessages; ++i)
      expect_message(got[i], kCount, static_cast<int>(i) * 1000 + 1 - rank.rank());
  });
}

// The memory is the program's again, and the receiver gets what was there when it was sent.
TEST(Loans, EndWithoutAReceiveWhenTheSenderHasWaited) {
  std::barrier turn(2);
  run_posts(2, [&turn](Rank& rank, IntraMessages& post) {
    post.keep_no_place();
    std::vector<std::byte> first(kMiB), second(3 * kMiB);
    if (rank.rank() == 0) {
      std::ranges::fill(first, std::byte{1});
      std::ranges::fill(second, std::byte{2});
      LongMessage one(rank, post, Collective::kSend, 5, buffer_of(first));
      LongMessage two(rank, post, Collective::kSend, 6, buffer_of(second));
      EXPECT_FALSE(one.task.done()) << "it is lent";
      one.finish(rank);
      two.finish(rank);
      std::ranges::fill(first, std::byte{9});
      std::ranges::fill(second, std::byte{9});
      turn.arrive_and_wait();
      turn.arrive_and_wait();
      return;
    }
    turn.arrive_and_wait();
    LongMessage two(rank, post, Collective::kRecv, 6, buffer_of(second));
    LongMessage one(rank, post, Collective::kRecv, 5, buffer_of(first));
    two.finish(rank);
    one.finish(rank);
    EXPECT_EQ(count_of(first, 1), first.size());
    EXPECT_EQ(count_of(second, 2), second.size());
    turn.arrive_and_wait();
  });
}

// The receiver comes about when the sender gives up to wait for it: whichever copies, no byte is of what the program writes later.
TEST(Loans, AreNeverReadAfterTheSendIsComplete) {
  constexpr int kRounds = 60;
  std::barrier turn(2);
  run_posts(2, [&turn](Rank& rank, IntraMessages& post) {
    post.keep_no_place();
    std::vector<std::byte> data(8 * kMiB);
    for (int round = 0; round < kRounds; ++round) {
      if (rank.rank() == 0) std::ranges::fill(data, static_cast<std::byte>(round + 1));
      turn.arrive_and_wait();
      if (rank.rank() == 0) {
        LongMessage sent(rank, post, Collective::kSend, 5, buffer_of(data));
        sent.finish(rank);
        std::ranges::fill(data, std::byte{0xff});
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(round % 3 == 0 ? 0 : 16) +
                                    std::chrono::microseconds(100) * round);
        LongMessage received(rank, post, Collective::kRecv, 5, buffer_of(data));
        received.finish(rank);
        ASSERT_EQ(count_of(data, round + 1), data.size()) << "round " << round;
      }
    }
  });
}

std::byte byte_of(std::size_t i, int round, int rank) {
  return static_cast<std::byte>((i + static_cast<std::size_t>(round)) * 2654435761U >> (20 + rank));
}

// Both ranks send and receive at once, so the sender's copies grow from the end while the receiver reads from the beginning, wherever
// they meet. What a program writes after its send is in no message.
TEST(Loans, AreReadAndCopiedFromBothEnds) {
  constexpr int kRounds = 24;
  static constexpr std::size_t kSizes[] = {kMiB + 1, 2 * kMiB, 3 * kMiB + 12345};
  std::barrier turn(2);
  run_posts(2, [&turn](Rank& rank, IntraMessages& post) {
    const HostRange shared = rank.domain.allocate(4 * kMiB);
    std::vector<std::byte> own(4 * kMiB), got(4 * kMiB);
    for (int round = 0; round < kRounds; ++round) {
      const std::size_t bytes = kSizes[round % 3];
      std::byte* const data = round % 4 == 3 ? rank.domain.view(rank.rank(), shared) : own.data();
      for (std::size_t i = 0; i < bytes; ++i) data[i] = byte_of(i, round, rank.rank());
      turn.arrive_and_wait();
      LongMessage sent(rank, post, Collective::kSend, 5, {data, bytes});
      EXPECT_FALSE(sent.task.done()) << "it is lent";
      const int pieces = rank.rank() == 0 ? round : 0;  // that it copies before it receives
      rank.loop.run_until([&sent, pieces, turns = 0]() mutable { return sent.task.done() || turns++ >= pieces; });
      LongMessage received(rank, post, Collective::kRecv, 5, {got.data(), bytes});
      sent.finish(rank);
      std::fill_n(data, bytes, std::byte{0xff});
      received.finish(rank);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < bytes; ++i) wrong += got[i] == byte_of(i, round, 1 - rank.rank()) ? 0 : 1;
      ASSERT_EQ(wrong, 0u) << "round " << round;
    }
    turn.arrive_and_wait();
  });
}

// Some of it is copied when the send ends with an error: the receive fails, too, and later messages do not.
TEST(Loans, OfWhichAPartIsCopiedAreRevoked) {
  std::barrier turn(2);
  std::atomic<bool> revoked = false;
  run_posts(2, [&](Rank& rank, IntraMessages& post) {
    std::vector<std::byte> data(16 * kMiB, std::byte{1}), later(2 * kMiB, std::byte{2});
    if (rank.rank() == 0) {
      LongMessage sent(rank, post, Collective::kSend, 5, buffer_of(data));
      rank.loop.run_until([&sent, turns = 0]() mutable { return sent.task.done() || turns++ >= 3; });
      sent.stop.request(std::make_exception_ptr(Error(Code::kTimeout, "enough")));
      try {
        sent.finish(rank);  // it was copied in time
      } catch (const Error&) {
        revoked = true;
      }
      std::ranges::fill(data, std::byte{9});
      turn.arrive_and_wait();
      LongMessage(rank, post, Collective::kSend, 6, buffer_of(later)).finish(rank);
      turn.arrive_and_wait();
      return;
    }
    turn.arrive_and_wait();
    std::ranges::fill(data, std::byte{0});
    std::ranges::fill(later, std::byte{0});
    LongMessage received(rank, post, Collective::kRecv, 5, buffer_of(data));
    if (revoked) {
      EXPECT_THROW(received.finish(rank), Error);
    } else {
      received.finish(rank);
      EXPECT_EQ(count_of(data, 1), data.size());
    }
    LongMessage(rank, post, Collective::kRecv, 6, buffer_of(later)).finish(rank);
    EXPECT_EQ(count_of(later, 2), later.size());
    turn.arrive_and_wait();
  });
}

// One that was received in another order than sent completes by itself.
TEST(Loans, EndInTheOrderOfTheReceives) {
  std::barrier turn(2);
  run_posts(2, [&turn](Rank& rank, IntraMessages& post) {
    post.keep_no_place();
    constexpr std::uint32_t kMessages = Loans::kMost + 50;  // more than may be lent at a time
    std::vector<std::vector<std::byte>> data(kMessages);
    for (std::uint32_t i = 0; i < kMessages; ++i)
      data[i].assign(200'000, static_cast<std::byte>(rank.rank() == 0 ? i % 251 : 255));
    std::deque<LongMessage> messages;
    const Collective kind = rank.rank() == 0 ? Collective::kSend : Collective::kRecv;
    if (rank.rank() == 1) {
      for (std::uint32_t i = kMessages; i-- > 0;) messages.emplace_back(rank, post, kind, i, buffer_of(data[i]));
    }
    turn.arrive_and_wait();
    if (rank.rank() == 0) {
      for (std::uint32_t i = 0; i < kMessages; ++i) messages.emplace_back(rank, post, kind, i, buffer_of(data[i]));
    }
    for (LongMessage& each : messages) each.finish(rank);
    for (std::uint32_t i = 0; i < kMessages; ++i)
      ASSERT_EQ(count_of(data[i], static_cast<int>(i % 251)), data[i].size()) << i;
    turn.arrive_and_wait();
  });
}

// Longer than what is read at once, with bytes that differ: read from memory of the program, and from memory of the slice.
TEST(Loans, OfManyPiecesAreReadWhole) {
  std::barrier turn(2);
  run_posts(2, [&turn](Rank& rank, IntraMessages& post) {
    post.keep_no_place();
    constexpr std::size_t kBytes = 40 * kMiB + 12345;
    const auto byte_at = [](std::size_t i) { return static_cast<std::byte>(i * 2654435761U >> 24); };
    std::vector<std::byte> data(kBytes);
    Buffer memory = buffer_of(data);
    for (const bool is_shared : {false, true}) {
      if (is_shared && rank.rank() == 0) {
        memory.data = rank.domain.view(rank.rank(), rank.domain.allocate(kBytes));
      }
      for (std::size_t i = 0; i < kBytes; ++i) memory.data[i] = rank.rank() == 0 ? byte_at(i) : std::byte{0};
      turn.arrive_and_wait();
      LongMessage message(rank, post, rank.rank() == 0 ? Collective::kSend : Collective::kRecv, 5, memory);
      EXPECT_TRUE(rank.rank() == 1 || !message.task.done()) << "it is lent";
      message.finish(rank);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < kBytes; ++i) wrong += memory.data[i] == byte_at(i) ? 0 : 1;
      ASSERT_EQ(wrong, 0u) << is_shared;
    }
  });
}

// One whose turn never comes, as the receiver reads others all the time.
TEST(Loans, EndAlsoWhileOthersAreRead) {
  std::barrier turn(2);
  std::atomic<bool> over = false;
  run_posts(2, [&](Rank& rank, IntraMessages& post) {
    post.keep_no_place();
    std::vector<std::byte> first(kMiB, std::byte{1}), others(kMiB, std::byte{2});
    if (rank.rank() == 0) {
      LongMessage unread(rank, post, Collective::kSend, 5, buffer_of(first));
      EXPECT_FALSE(unread.task.done());
      int sent = 0;
      const Instant end = after(rank.loop.now(), std::chrono::seconds(60));
      while (!unread.task.done() && rank.loop.now() < end) {
        LongMessage(rank, post, Collective::kSend, 6, buffer_of(others)).finish(rank);
        ++sent;
      }
      ASSERT_TRUE(unread.task.done()) << "after " << sent << " others";
      unread.finish(rank);
      over = true;
      LongMessage(rank, post, Collective::kSend, 6, buffer_of(others)).finish(rank);
      turn.arrive_and_wait();
      return;
    }
    do {
      LongMessage(rank, post, Collective::kRecv, 6, buffer_of(others)).finish(rank);
    } while (!over);
    LongMessage(rank, post, Collective::kRecv, 5, buffer_of(first)).finish(rank);
    turn.arrive_and_wait();
  });
}

// A receiver that has let one be copied is not waited for again, until it has read one.
TEST(Loans, AreNotMadeToWhoIsLate) {
  std::barrier turn(2);
  run_posts(2, [&turn](Rank& rank, IntraMessages& post) {
    post.keep_no_place();
    std::vector<std::byte> data(kMiB, std::byte{1});
    const auto send = [&] {
      auto message = std::make_unique<LongMessage>(rank, post, Collective::kSend, 5, buffer_of(data));
      const bool lent = !message->task.done();
      message->finish(rank);
      return lent;
    };
    const auto receive = [&] { LongMessage(rank, post, Collective::kRecv, 5, buffer_of(data)).finish(rank); };
    if (rank.rank() == 0) {
      EXPECT_TRUE(send());
      for (int i = 0; i < 3; ++i) EXPECT_FALSE(send());
      turn.arrive_and_wait();
      turn.arrive_and_wait();
      EXPECT_TRUE(send());
      turn.arrive_and_wait();
      return;
    }
    turn.arrive_and_wait();
    for (int i = 0; i < 4; ++i) receive();
    turn.arrive_and_wait();
    receive();
    turn.arrive_and_wait();
  });
}

// A mapping that the kernel reads for nobody is copied by its owner.
TEST(Loans, AreNotMadeOfMemoryThatNobodyElseCanRead) {
  const auto descriptor = static_cast<int>(syscall(SYS_memfd_secret, 0));
  void* const secret = descriptor < 0 || ftruncate(descriptor, kMiB) != 0
                           ? MAP_FAILED
                           : mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (descriptor >= 0) ::close(descriptor);
  if (secret == MAP_FAILED) GTEST_SKIP() << "the kernel gives no secret memory (memfd_secret)";
  std::barrier turn(2);
  run_posts(2, [&](Rank& rank, IntraMessages& post) {
    post.keep_no_place();
    std::vector<std::byte> data(kMiB);
    if (rank.rank() == 0) {
      std::memset(secret, 7, kMiB);
      LongMessage sent(rank, post, Collective::kSend, 5, {static_cast<std::byte*>(secret), kMiB});
      EXPECT_TRUE(sent.task.done());
      sent.finish(rank);
    } else {
      LongMessage(rank, post, Collective::kRecv, 5, buffer_of(data)).finish(rank);
      EXPECT_EQ(count_of(data, 7), data.size());
    }
    turn.arrive_and_wait();
  });
  munmap(secret, kMiB);
}

TEST(Loans, ThatAreRevokedFailTheirReceive) {
  std::barrier turn(2);
  run_posts(2, [&turn](Rank& rank, IntraMessages& post) {
    post.keep_no_place();
    std::vector<std::byte> data(kMiB, static_cast<std::byte>(rank.rank()));
    if (rank.rank() == 0) {
      LongMessage sent(rank, post, Collective::kSend, 5, buffer_of(data));
      sent.stop.request(std::make_exception_ptr(Error(Code::kTimeout, "enough")));
      EXPECT_THROW(sent.finish(rank), Error);
      turn.arrive_and_wait();
      turn.arrive_and_wait();
      return;
    }
    turn.arrive_and_wait();
    LongMessage received(rank, post, Collective::kRecv, 5, buffer_of(data));
    try {
      received.finish(rank);
      ADD_FAILURE() << "nobody sends it any more";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kAborted);
      EXPECT_EQ(error.message(), "rank 0 has given up its send");
    }
    turn.arrive_and_wait();
  });
}

// As when the sender's process ends in the middle: the receive names it.
TEST(Loans, WhoseMemoryIsGoneFailTheirReceive) {
  std::barrier turn(2);
  run_posts(2, [&turn](Rank& rank, IntraMessages& post) {
    post.keep_no_place();
    std::vector<std::byte> data(4 * kMiB);
    if (rank.rank() == 0) {
      void* const memory =
          mmap(nullptr, data.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
      ASSERT_NE(memory, MAP_FAILED);
      LongMessage sent(rank, post, Collective::kSend, 5, {static_cast<std::byte*>(memory), data.size()});
      munmap(static_cast<std::byte*>(memory) + data.size() / 2, data.size() / 2);
      turn.arrive_and_wait();
      turn.arrive_and_wait();
      sent.stop.request(std::make_exception_ptr(Error(Code::kPeerFailed, "the group is over")));
      EXPECT_THROW(sent.finish(rank), Error);
      munmap(memory, data.size() / 2);
      return;
    }
    turn.arrive_and_wait();
    LongMessage received(rank, post, Collective::kRecv, 5, buffer_of(data));
    try {
      received.finish(rank);
      ADD_FAILURE() << "half of it is gone";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kAborted);
      EXPECT_NE(error.message().find("cannot read the buffer of rank 0"), std::string::npos) << error.message();
    }
    turn.arrive_and_wait();
  });
}

}  // namespace
}  // namespace aiacc::intra
