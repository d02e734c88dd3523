// The conformance suite of Net, real or simulated.
//
// A Fixture gives: Loop& loop(); io::Net& net(); template <class T> T run(Task<T>), which drives the loop until the task
// ends; std::vector<Address> places(): one address to listen on for each kind the implementation has, never given before.
// Use: INSTANTIATE_TYPED_TEST_SUITE_P(Name, NetConformance, MyFixture).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/io/net.h"
#include "base/io/nobody_listens.h"
#include "base/task/scope.h"

namespace aiacc::io {
namespace net_conformance {

using Bytes = std::vector<std::byte>;
using StreamPtr = std::unique_ptr<Stream>;
using std::chrono::milliseconds;

struct Pair {
  StreamPtr client;
  StreamPtr server;
};

inline Bytes pattern(std::size_t bytes, unsigned seed) {
  Bytes result(bytes);
  std::uint32_t state = seed * 2654435761u + 1;
  for (std::byte& byte : result) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24);
  }
  return result;
}

inline Task<void> accept_one(Listener& listener, StreamPtr& into, Stop& stop) { into = co_await listener.accept(stop); }

inline Task<Pair> connected(Loop& loop, Net& net, Listener& listener) {
  Stop stop;
  Pair pair;
  Scope scope(loop, stop);
  scope.spawn(accept_one(listener, pair.server, scope.stop()));
  pair.client = co_await net.connect(listener.address(), stop);
  co_await scope.join();
  co_return pair;
}

// Writes in pieces of odd sizes, then ends its direction.
inline Task<void> write_in_pieces(Stream& stream, const Bytes& what, Stop& stop) {
  std::size_t done = 0;
  for (std::size_t piece = 1; done < what.size(); piece = piece * 3 % 70'001 + 1) {
    const std::size_t length = std::min(piece, what.size() - done);
    co_await write_all(stream, std::span(what).subspan(done, length), stop);
    done += length;
  }
  stream.shutdown_write();
}

inline Task<void> read_to_end(Stream& stream, Bytes& into, Stop& stop) {
  Bytes part(30'011);
  for (;;) {
    const std::size_t moved = co_await stream.read_some(part, stop);
    if (moved == 0) co_return;
    into.insert(into.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(moved));
  }
}

inline Task<void> exchange(Loop& loop, Pair& pair, const Bytes& up, const Bytes& down, Bytes& up_seen,
                           Bytes& down_seen) {
  Stop stop;
  Scope scope(loop, stop);
  scope.spawn(write_in_pieces(*pair.client, up, scope.stop()));
  scope.spawn(write_in_pieces(*pair.server, down, scope.stop()));
  scope.spawn(read_to_end(*pair.server, up_seen, scope.stop()));
  scope.spawn(read_to_end(*pair.client, down_seen, scope.stop()));
  co_await scope.join();
}

inline Task<void> discard_connect(Net& net, Address address) {
  Stop stop;
  const StreamPtr stream = co_await net.connect(address, stop);
}

inline Task<void> stop_after(Loop& loop, Duration span, Stop& stop, Stop& target) {
  co_await sleep_for(loop, span, stop);
  target.request(std::make_exception_ptr(Error(Code::kTimeout, "waited long enough")));
}

inline Task<std::size_t> read_once(Stream& stream, Bytes& into, Stop& stop) {
  const std::size_t moved = co_await stream.read_some(into, stop);
  co_return moved;
}

inline Task<void> accept_and_drop(Listener& listener, Stop& stop) {
  const StreamPtr stream = co_await listener.accept(stop);
}

// The error that `body` throws when its stop, `target`, is requested after a moment.
template <class T>
Task<Error> error_when_stopped(Loop& loop, Task<T> body, Stop& target) {
  Stop outer;
  Scope scope(loop, outer);
  scope.spawn(stop_after(loop, milliseconds(5), scope.stop(), target));
  Error seen(Code::kOk, "nothing was thrown");
  try {
    co_await std::move(body);
  } catch (const Error& error) {
    seen = error;
  }
  co_await scope.join();
  co_return seen;
}

inline Task<void> write_forever(Stream& stream, std::size_t& written, Stop& stop) {
  const Bytes piece = pattern(64 * 1024, 1);
  for (;;) {
    const std::size_t moved = co_await stream.write_some(piece, stop);
    written += moved;
  }
}

inline Task<void> read_bytes(Stream& stream, std::size_t bytes, Stop& stop) {
  Bytes part(64 * 1024);
  while (bytes > 0) {
    const std::size_t moved = co_await stream.read_some(std::span(part).first(std::min(bytes, part.size())), stop);
    if (moved == 0) co_return;
    bytes -= moved;
  }
}

inline Task<void> write_bytes(Stream& stream, Bytes what, Stop& stop) { co_await write_all(stream, what, stop); }

// Writes all of `what`, cut into pieces of growing sizes, some of them empty.
inline Task<void> write_gathered(Stream& stream, const Bytes& what, Stop& stop) {
  std::size_t done = 0;
  while (done < what.size()) {
    std::vector<Bytes> copies;
    std::vector<Piece> pieces;
    std::size_t at = done;
    for (std::size_t i = 0; i < 100; ++i) {
      const std::size_t length = std::min(i * i * 7 % 5000, what.size() - at);
      copies.emplace_back(what.begin() + static_cast<std::ptrdiff_t>(at),
                          what.begin() + static_cast<std::ptrdiff_t>(at + length));
      pieces.emplace_back(copies.back());
      at += length;
    }
    const std::size_t moved = co_await stream.write_gathered(pieces, stop);
    if (moved == 0 || moved > at - done) throw Error(Code::kInternal, "a gathered write moved what it had not");
    done += moved;
  }
  stream.shutdown_write();
}

inline Task<void> gathered_exchange(Loop& loop, Pair& pair, const Bytes& what, Bytes& seen) {
  Stop stop;
  Scope scope(loop, stop);
  scope.spawn(write_gathered(*pair.client, what, scope.stop()));
  scope.spawn(read_to_end(*pair.server, seen, scope.stop()));
  co_await scope.join();
}

inline Task<bool> read_full(Stream& stream, Bytes& into, Stop& stop) {
  co_return co_await read_exactly(stream, into, stop);
}

inline Task<void> echo_one_byte(Loop&, Net& net, Address address, int name, Stop& stop) {
  const StreamPtr stream = co_await net.connect(std::move(address), stop);
  Bytes one(1, static_cast<std::byte>(name));
  co_await write_all(*stream, one, stop);
  Bytes answer(1);
  const bool whole = co_await read_exactly(*stream, answer, stop);
  if (!whole || answer != one) throw Error(Code::kProtocol, "the echo differs");
}

inline Task<void> serve_echo(Listener& listener, int connections, Stop& stop) {
  std::vector<StreamPtr> open;  // all connections stay open
  for (int i = 0; i < connections; ++i) open.push_back(co_await listener.accept(stop));
  for (const StreamPtr& stream : open) {
    Bytes one(1);
    co_await read_exactly(*stream, one, stop);
    co_await write_all(*stream, one, stop);
  }
}

inline Task<void> many_connections(Loop& loop, Net& net, Listener& listener, int count) {
  Stop stop;
  Scope scope(loop, stop);
  for (int i = 0; i < count; ++i) scope.spawn(echo_one_byte(loop, net, listener.address(), i, scope.stop()));
  scope.spawn(serve_echo(listener, count, scope.stop()));
  co_await scope.join();
}

}  // namespace net_conformance

template <class Fixture>
class NetConformance : public testing::Test {
 protected:
  net_conformance::Pair connect(const Address& place) {
    const std::unique_ptr<Listener> listener = fixture_.net().listen(place);
    return fixture_.run(net_conformance::connected(fixture_.loop(), fixture_.net(), *listener));
  }
  template <class T>
  Error error_of(Task<T> task) {
    try {
      fixture_.run(std::move(task));
    } catch (const Error& error) {
      return error;
    }
    return Error(Code::kOk, "nothing was thrown");
  }
  Fixture fixture_;
};
TYPED_TEST_SUITE_P(NetConformance);

TYPED_TEST_P(NetConformance, BytesArriveInOrderInBothDirectionsAtOnce) {
  using namespace net_conformance;
  for (const Address& place : this->fixture_.places()) {
    SCOPED_TRACE(place.text());
    Pair pair = this->connect(place);
    const Bytes up = pattern(1'000'003, 1);
    const Bytes down = pattern(777'777, 2);
    Bytes up_seen;
    Bytes down_seen;
    this->fixture_.run(exchange(this->fixture_.loop(), pair, up, down, up_seen, down_seen));
    EXPECT_TRUE(up_seen == up);
    EXPECT_TRUE(down_seen == down);
  }
}

TYPED_TEST_P(NetConformance, AGatheredWriteIsOneAfterTheOther) {
  using namespace net_conformance;
  for (const Address& place : this->fixture_.places()) {
    SCOPED_TRACE(place.text());
    Pair pair = this->connect(place);
    const Bytes what = pattern(2'000'003, 6);
    Bytes seen;
    this->fixture_.run(gathered_exchange(this->fixture_.loop(), pair, what, seen));
    EXPECT_TRUE(seen == what);
  }
}

TYPED_TEST_P(NetConformance, TheEndOfOneDirectionLeavesTheOtherOpen) {
  using namespace net_conformance;
  for (const Address& place : this->fixture_.places()) {
    SCOPED_TRACE(place.text());
    Stop stop;
    Pair pair = this->connect(place);
    pair.client->shutdown_write();
    Bytes into(10);
    EXPECT_EQ(this->fixture_.run(read_once(*pair.server, into, stop)), 0u);
    EXPECT_EQ(this->fixture_.run(read_once(*pair.server, into, stop)), 0u);
    const Bytes answer = pattern(10, 3);
    this->fixture_.run(write_bytes(*pair.server, answer, stop));
    EXPECT_TRUE(this->fixture_.run(read_full(*pair.client, into, stop)));
    EXPECT_EQ(into, answer);
  }
}

TYPED_TEST_P(NetConformance, ReadExactlyTellsACleanEndFromATornMessage) {
  using namespace net_conformance;
  for (const Address& place : this->fixture_.places()) {
    SCOPED_TRACE(place.text());
    Stop stop;
    Bytes into(8);
    Pair clean = this->connect(place);
    clean.client->shutdown_write();
    EXPECT_FALSE(this->fixture_.run(read_full(*clean.server, into, stop)));
  }
  for (const Address& place : this->fixture_.places()) {
    SCOPED_TRACE(place.text());
    Stop stop;
    Bytes into(8);
    Pair torn = this->connect(place);
    this->fixture_.run(write_bytes(*torn.client, pattern(5, 1), stop));
    torn.client->shutdown_write();
    const Error error = this->error_of(read_full(*torn.server, into, stop));
    EXPECT_EQ(error.code(), Code::kProtocol);
    EXPECT_NE(error.message().find("5 of 8"), std::string::npos) << error.message();
  }
}

TYPED_TEST_P(NetConformance, NobodyListeningIsAPeerFailureThatNamesTheAddress) {
  using namespace net_conformance;
  for (const Address& place : this->fixture_.places()) {
    Address gone;
    {
      const std::unique_ptr<Listener> listener = this->fixture_.net().listen(place);
      gone = listener->address();
    }
    const Error error = this->error_of(discard_connect(this->fixture_.net(), gone));
    EXPECT_EQ(error.code(), Code::kPeerFailed) << error.message();
    EXPECT_NE(error.message().find(gone.text()), std::string::npos) << error.message();
    EXPECT_THROW(this->fixture_.run(discard_connect(this->fixture_.net(), gone)), NobodyListens);
  }
}

TYPED_TEST_P(NetConformance, AnAddressHasOneListener) {
  using namespace net_conformance;
  for (const Address& place : this->fixture_.places()) {
    const std::unique_ptr<Listener> listener = this->fixture_.net().listen(place);
    const bool tcp = place.kind == Address::Kind::kTcp;
    EXPECT_TRUE(!tcp || listener->address().port != 0);
    try {
      this->fixture_.net().listen(listener->address());
      ADD_FAILURE() << "two listeners on " << listener->address().text();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kSystem);
      EXPECT_NE(error.message().find(listener->address().text()), std::string::npos) << error.message();
    }
  }
}

TYPED_TEST_P(NetConformance, AStopEndsAReadAndTheStreamGoesOn) {
  using namespace net_conformance;
  for (const Address& place : this->fixture_.places()) {
    SCOPED_TRACE(place.text());
    Pair pair = this->connect(place);
    Bytes into(4);
    Stop stopped;
    const Error error =
        this->fixture_.run(error_when_stopped(this->fixture_.loop(), read_once(*pair.server, into, stopped), stopped));
    EXPECT_EQ(error.message(), "waited long enough");
    Stop stop;
    const Bytes sent = pattern(4, 9);
    this->fixture_.run(write_bytes(*pair.client, sent, stop));
    EXPECT_TRUE(this->fixture_.run(read_full(*pair.server, into, stop)));
    EXPECT_EQ(into, sent);
  }
}

TYPED_TEST_P(NetConformance, AStopEndsAnAccept) {
  using namespace net_conformance;
  for (const Address& place : this->fixture_.places()) {
    SCOPED_TRACE(place.text());
    const std::unique_ptr<Listener> listener = this->fixture_.net().listen(place);
    Stop stopped;
    const Error error =
        this->fixture_.run(error_when_stopped(this->fixture_.loop(), accept_and_drop(*listener, stopped), stopped));
    EXPECT_EQ(error.message(), "waited long enough");
    const Pair pair = this->fixture_.run(connected(this->fixture_.loop(), this->fixture_.net(), *listener));
    EXPECT_TRUE(pair.server != nullptr);
  }
}

TYPED_TEST_P(NetConformance, WritesWaitForAReaderThatIsSlow) {
  using namespace net_conformance;
  for (const Address& place : this->fixture_.places()) {
    SCOPED_TRACE(place.text());
    Pair pair = this->connect(place);
    std::size_t written = 0;
    for (int attempt = 0; attempt < 100 && written == 0; ++attempt) {  // it may be stopped before it begins
      Stop stopped;
      const Error error = this->fixture_.run(
          error_when_stopped(this->fixture_.loop(), write_forever(*pair.client, written, stopped), stopped));
      EXPECT_EQ(error.message(), "waited long enough") << "a stream without a reader took " << written << " bytes";
    }
    EXPECT_GT(written, 0u);
    Stop stop;
    this->fixture_.run(read_bytes(*pair.server, written, stop));
    const Bytes more = pattern(100, 4);
    Bytes seen(100);
    this->fixture_.run(write_bytes(*pair.client, more, stop));
    EXPECT_TRUE(this->fixture_.run(read_full(*pair.server, seen, stop)));
    EXPECT_EQ(seen, more);
  }
}

// The peer's process need not have read them.
TYPED_TEST_P(NetConformance, BytesThatThePeersHostHasAreAcknowledged) {
  using namespace net_conformance;
  for (const Address& place : this->fixture_.places()) {
    if (place.kind != Address::Kind::kTcp) continue;
    SCOPED_TRACE(place.text());
    Pair pair = this->connect(place);
    const std::uint64_t before = pair.client->flow().acknowledged;  // a system may count the connection itself
    const Bytes sent = pattern(10'000, 5);
    Stop stop;
    this->fixture_.run(write_bytes(*pair.client, sent, stop));
    Bytes seen(10'000);
    EXPECT_TRUE(this->fixture_.run(read_full(*pair.server, seen, stop)));
    this->fixture_.run(write_bytes(*pair.server, sent, stop));
    EXPECT_TRUE(this->fixture_.run(read_full(*pair.client, seen, stop)));
    const FlowState now = pair.client->flow();
    EXPECT_EQ(now.acknowledged - before, 10'000u) << "before what the peer's answer has acknowledged";
    EXPECT_EQ(now.held, 0u);
    EXPECT_GT(now.least_rtt, Duration{});
  }
}

TYPED_TEST_P(NetConformance, AClosedPeerEndsReadsAndFailsWrites) {
  using namespace net_conformance;
  for (const Address& place : this->fixture_.places()) {
    SCOPED_TRACE(place.text());
    Pair pair = this->connect(place);
    Stop stop;
    pair.server.reset();
    Bytes into(4);
    EXPECT_EQ(this->fixture_.run(read_once(*pair.client, into, stop)), 0u);
    std::size_t written = 0;
    const Error error = this->error_of(write_forever(*pair.client, written, stop));
    EXPECT_EQ(error.code(), Code::kPeerFailed) << error.message();
    EXPECT_NE(error.message().find(pair.client->describe()), std::string::npos) << error.message();
  }
}

TYPED_TEST_P(NetConformance, ConnectionsOutliveTheirListener) {
  using namespace net_conformance;
  for (const Address& place : this->fixture_.places()) {
    SCOPED_TRACE(place.text());
    Pair pair = this->connect(place);  // the listener is destroyed already
    Stop stop;
    const Bytes sent = pattern(100, 5);
    Bytes seen(100);
    this->fixture_.run(write_bytes(*pair.server, sent, stop));
    EXPECT_TRUE(this->fixture_.run(read_full(*pair.client, seen, stop)));
    EXPECT_EQ(seen, sent);
  }
}

TYPED_TEST_P(NetConformance, ALocalPeerIsKnown) {
  using namespace net_conformance;
  for (const Address& place : this->fixture_.places()) {
    SCOPED_TRACE(place.text());
    const Pair pair = this->connect(place);
    const bool local = place.kind == Address::Kind::kLocal;
    ASSERT_EQ(pair.server->peer_identity().has_value(), local);
    EXPECT_TRUE(!local || pair.server->peer_identity()->pid > 0);
  }
}

TYPED_TEST_P(NetConformance, SixtyFourConnectionsAtOnce) {
  using namespace net_conformance;
  for (const Address& place : this->fixture_.places()) {
    SCOPED_TRACE(place.text());
    const std::unique_ptr<Listener> listener = this->fixture_.net().listen(place);
    this->fixture_.run(many_connections(this->fixture_.loop(), this->fixture_.net(), *listener, 64));
  }
}

REGISTER_TYPED_TEST_SUITE_P(NetConformance, BytesArriveInOrderInBothDirectionsAtOnce, AGatheredWriteIsOneAfterTheOther,
                            TheEndOfOneDirectionLeavesTheOtherOpen, ReadExactlyTellsACleanEndFromATornMessage,
                            NobodyListeningIsAPeerFailureThatNamesTheAddress, AnAddressHasOneListener,
                            AStopEndsAReadAndTheStreamGoesOn, AStopEndsAnAccept, WritesWaitForAReaderThatIsSlow,
                            BytesThatThePeersHostHasAreAcknowledged, AClosedPeerEndsReadsAndFailsWrites,
                            ConnectionsOutliveTheirListener, ALocalPeerIsKnown, SixtyFourConnectionsAtOnce);

}  // namespace aiacc::io
