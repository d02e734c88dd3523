// The store fence between real processes. A storer is stopped exactly in the middle of its stores: a page of its own view is
// protected, and the handler of the fault stops the process. Then the operation fails, the owner goes on with its buffer,
// the storer wakes, finishes the store it was in, and nothing changes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "transports/host/memfd_domain.h"

namespace aiacc {
namespace {

constexpr std::uint64_t kFenceNonce = 99;
constexpr std::uint64_t kOperation = 1234;
constexpr std::size_t kBytes = 64 * 1024;
constexpr std::size_t kChunk = 16 * 1024;
constexpr std::size_t kTrap = 24 * 1024;  // in the middle of the second chunk

std::byte* trap_page = nullptr;

void stop_at_trap(int, siginfo_t*, void*) {
  mprotect(trap_page, SegmentMapping::kPage, PROT_READ | PROT_WRITE);
  raise(SIGSTOP);
}

void set_trap(std::byte* at) {
  trap_page = at - reinterpret_cast<std::uintptr_t>(at) % SegmentMapping::kPage;
  struct sigaction action {};
  action.sa_sigaction = stop_at_trap;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, nullptr);
  mprotect(trap_page, SegmentMapping::kPage, PROT_NONE);
}

// A rank that stores into rank 0's buffer, chunk after chunk. Exit code 0: the abort was seen after the trapped chunk.
[[noreturn]] void store_until_aborted(int descriptor, int rank, int ranks, std::uint64_t offset) {
  io::RealLoop loop;
  const auto domain = MemfdDomain::attach(descriptor, kFenceNonce, rank, ranks, loop);
  std::byte* theirs = domain->view(0, offset, kTrap);
  set_trap(theirs + kTrap);
  int result = 1;
  try {
    StoreWindow window(*domain, kOperation);
    for (std::size_t at = 0; at < kBytes; at += kChunk) {
      window.next_chunk();
      for (std::size_t i = 0; i < kChunk; ++i) reinterpret_cast<volatile std::byte*>(theirs)[at + i] = std::byte{0xee};
    }
    result = 2;  // stored all of it: nobody stopped it
  } catch (const Error& error) {
    result = error.code() == Code::kAborted ? 0 : 3;
  }
  _exit(result);
}

class Fence : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3;

  Fence()
      : segment_(HostSegment::create(kRanks, std::uint64_t{16} << 20, kFenceNonce)),
        owner_(MemfdDomain::attach(segment_.descriptor(), kFenceNonce, 0, kRanks, loop_)),
        range_(owner_->allocate(kBytes)),
        buffer_(owner_->view(0, range_)) {
    std::memset(buffer_, 0x11, kBytes);
  }

  pid_t start_storer(int rank) {
    const pid_t child = fork();
    if (child == 0) store_until_aborted(segment_.descriptor(), rank, kRanks, range_.offset);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, WUNTRACED), child);
    EXPECT_TRUE(WIFSTOPPED(status)) << "the storer ended with status " << status;
    return child;
  }

  static int exit_code_of(pid_t child) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  bool buffer_is(std::byte value) const {
    return std::all_of(buffer_, buffer_ + kBytes, [value](std::byte byte) { return byte == value; });
  }

  io::RealLoop loop_;
  HostSegment segment_;
  std::unique_ptr<MemfdDomain> owner_;
  HostRange range_;
  std::byte* buffer_;
};

TEST_F(Fence, AStopInTheMiddleOfAStoreChangesNothingAfterTheError) {
  const pid_t storer = start_storer(1);
  EXPECT_EQ(buffer_[0], std::byte{0xee}) << "the first chunk was stored";
  EXPECT_EQ(buffer_[kBytes - 1], std::byte{0x11});

  const Instant began = loop_.now();
  owner_->abort_stores(kOperation);
  loop_.run(owner_->quiesce(kOperation, range_));
  const Duration took = loop_.now() - began;
  RecordProperty("quiesce_ms", static_cast<int>(took.count() / 1'000'000));
  EXPECT_LT(took, std::chrono::seconds(20)) << "promised: 1 s and the copy";

  std::memset(buffer_, 0x22, kBytes);
  kill(storer, SIGCONT);
  EXPECT_EQ(exit_code_of(storer), 0) << "the storer finished its chunk and saw the abort";
  EXPECT_TRUE(buffer_is(std::byte{0x22}));
}

TEST_F(Fence, AThirdRankDiesWhileOneIsStopped) {
  const pid_t stopped = start_storer(1);
  const pid_t dying = start_storer(2);
  owner_->abort_stores(kOperation);
  Task<void> quiet = owner_->quiesce(kOperation, range_);
  quiet.start();
  EXPECT_FALSE(quiet.done());
  kill(dying, SIGKILL);
  EXPECT_EQ(exit_code_of(dying), 128 + SIGKILL);
  owner_->mark_dead(2);
  loop_.run_until([&quiet] { return quiet.done(); });
  quiet.take();

  std::memset(buffer_, 0x33, kBytes);
  kill(stopped, SIGCONT);
  EXPECT_EQ(exit_code_of(stopped), 0);
  EXPECT_TRUE(buffer_is(std::byte{0x33}));
}

TEST_F(Fence, AKilledStorerIsNotWaitedFor) {
  const pid_t storer = start_storer(1);
  kill(storer, SIGKILL);
  EXPECT_EQ(exit_code_of(storer), 128 + SIGKILL);
  owner_->mark_dead(1);
  owner_->abort_stores(kOperation);
  const Instant began = loop_.now();
  loop_.run(owner_->quiesce(kOperation, range_));
  EXPECT_LT(loop_.now() - began, std::chrono::milliseconds(900));
  EXPECT_EQ(owner_->offset_of(buffer_, kBytes), range_.offset) << "the range stays shared";
}

TEST_F(Fence, ARunningStorerAcknowledgesAndTheRangeStaysShared) {
  const pid_t storer = start_storer(1);
  owner_->abort_stores(kOperation);
  Task<void> quiet = owner_->quiesce(kOperation, range_);
  quiet.start();
  EXPECT_FALSE(quiet.done());
  kill(storer, SIGCONT);
  loop_.run_until([&quiet] { return quiet.done(); });
  quiet.take();
  std::memset(buffer_, 0x44, kBytes);
  EXPECT_EQ(exit_code_of(storer), 0);
  EXPECT_TRUE(buffer_is(std::byte{0x44}));
  EXPECT_EQ(owner_->offset_of(buffer_, kBytes), range_.offset);
}

}  // namespace
}  // namespace aiacc
