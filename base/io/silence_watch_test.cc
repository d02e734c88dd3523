// Loopback connections whose packets a socket filter drops, as in a broken network.
#include "base/io/silence_watch.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <sys/socket.h>

#include <optional>

#include "base/io/net_conformance.h"
#include "base/io/real_fixture.h"

namespace aiacc::io {
namespace {

using namespace std::chrono_literals;
using net_conformance::Bytes;
using net_conformance::read_full;
using net_conformance::write_bytes;

class SilenceTest : public testing::Test {
 protected:
  static constexpr Duration kLimit = 300ms;

  void connect() { pair_ = loop_.run(net_conformance::connected(loop_, net_, *listener_)); }
  // Drops all packets to the stream's socket.
  static void deafen(const Stream& stream) {
    sock_filter drop = {BPF_RET | BPF_K, 0, 0, 0};
    const sock_fprog program = {1, &drop};
    ASSERT_EQ(setsockopt(stream.descriptor(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), 0);
  }
  static void heal(const Stream& stream) {
    const int none = 0;
    ASSERT_EQ(setsockopt(stream.descriptor(), SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof none), 0);
  }
  Error failure_of(Task<void> task) {
    try {
      loop_.run(std::move(task));
    } catch (const Error& error) {
      return error;
    }
    return Error(Code::kOk, "nothing was thrown");
  }
  Task<void> read_forever(Stream* stream, Stop* stop) {
    Bytes bytes(1 << 16);
    while (co_await stream->read_some(bytes, *stop) > 0) {
    }
  }
  Task<void> write_forever(Stream* stream, Stop* stop) {
    const Bytes bytes(1 << 16);
    for (;;) co_await write_all(*stream, bytes, *stop);
  }

  Task<void> rest(Duration span) { co_await sleep_for(loop_, span, stop_); }

  RealLoop loop_;
  RealNet net_{loop_, {.silence_limit = kLimit}};
  std::unique_ptr<Listener> listener_ = net_.listen(Address::tcp("127.0.0.1", 0));
  net_conformance::Pair pair_;
  Stop stop_;
};

// After a second or two the server's keepalives, whose answers it does not hear, reset the connection: where this thread is not let run
// before that, the test begins again.
TEST_F(SilenceTest, AnEndThatWaitsForAnAnswerHearsThatItsBytesWereLost) {
  Duration took = 1h;
  std::optional<Error> error;
  for (int attempt = 0; attempt < 20 && took > 900ms; ++attempt) {
    connect();
    deafen(*pair_.server);
    const Instant deafened = loop_.now();
    loop_.run(write_bytes(*pair_.client, Bytes(100), stop_));
    error = failure_of(read_forever(pair_.client.get(), &stop_));
    EXPECT_EQ(error->code(), Code::kPeerFailed);
    took = loop_.now() - deafened;
    EXPECT_GE(took, kLimit - kLimit / 3);
  }
  EXPECT_NE(error->message().find("timed out"), std::string::npos) << error->message();
  EXPECT_EQ(failure_of(write_bytes(*pair_.client, Bytes(1), stop_)).code(), Code::kPeerFailed) << "it stays broken";
}

TEST_F(SilenceTest, AnEndThatWritesOnHearsItToo) {
  connect();
  deafen(*pair_.server);
  EXPECT_EQ(failure_of(write_forever(pair_.client.get(), &stop_)).code(), Code::kPeerFailed);
}

// The reader's host keeps answering that its window is closed.
TEST_F(SilenceTest, AReaderThatDoesNotReadForLongIsNotSilent) {
  connect();
  Stop patience;
  Deadline deadline(loop_, loop_.now() + 6 * kLimit, patience, "it does not read");
  EXPECT_EQ(failure_of(write_forever(pair_.client.get(), &patience)).code(), Code::kTimeout);
  pair_.client->shutdown_write();
  EXPECT_EQ(failure_of(read_forever(pair_.server.get(), &stop_)).code(), Code::kOk) << "all of it has come";
}

// The kernel sends again what is lost after 0.2, 0.6 and 1.4 s. On a machine that does not let this thread heal the connection before
// that, the host may be lost: the test begins again.
TEST_F(SilenceTest, AHostThatIsSilentForAMomentOnlyIsNotLost) {
  constexpr Duration kLonger = 1500ms;
  RealNet net(loop_, {.silence_limit = kLonger});
  const std::unique_ptr<Listener> listener = net.listen(Address::tcp("127.0.0.1", 0));
  Duration silent = kLonger;
  for (int attempt = 0; attempt < 20 && silent > 590ms; ++attempt) {
    pair_ = loop_.run(net_conformance::connected(loop_, net, *listener));
    deafen(*pair_.server);
    const Instant began = loop_.now();
    loop_.run(write_bytes(*pair_.client, Bytes(100), stop_));
    loop_.run(rest(kLonger / 3));
    heal(*pair_.server);
    silent = loop_.now() - began;
  }
  Bytes again(100);
  EXPECT_TRUE(loop_.run(read_full(*pair_.server, again, stop_))) << "it was sent again";
  loop_.run(rest(kLonger));
  loop_.run(write_bytes(*pair_.client, Bytes(100), stop_));
  pair_.client->shutdown_write();
  EXPECT_EQ(failure_of(read_forever(pair_.server.get(), &stop_)).code(), Code::kOk);
}

// Counts beats, each directly after a check of the watch.
class Beats final : public SilenceWatch::Owner, private Timer {
 public:
  Beats(RealLoop& loop, Duration interval) noexcept : loop_(loop), interval_(interval) {}
  void begin() { loop_.arm(*this, after(loop_.now(), interval_)); }
  std::optional<int> when_notified() const noexcept { return when_notified_; }  // the number of beats at that time

 private:
  void expired() noexcept override {
    ++count_;
    begin();
  }
  void silence_detected() noexcept override { when_notified_ = count_; }

  RealLoop& loop_;
  Duration interval_;
  int count_ = 0;
  std::optional<int> when_notified_;
};

TEST_F(SilenceTest, ThreeLooksThatFindNoAnswerAreEnough) {
  RealNet patient(loop_);
  const std::unique_ptr<Listener> listener = patient.listen(Address::tcp("127.0.0.1", 0));
  pair_ = loop_.run(net_conformance::connected(loop_, patient, *listener));
  deafen(*pair_.server);
  loop_.run(rest(kLimit / 2));  // so that the first check finds nothing recent
  loop_.run(write_bytes(*pair_.client, Bytes(100), stop_));
  Beats beats(loop_, kLimit / 3);
  SilenceWatch watch(loop_, pair_.client->descriptor(), kLimit, beats);
  watch.bytes_written();
  beats.begin();
  loop_.run_until([&] { return beats.when_notified().has_value(); });
  EXPECT_EQ(beats.when_notified(), 2);
}

}  // namespace
}  // namespace aiacc::io
