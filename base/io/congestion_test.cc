#include "base/io/congestion.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/error.h"
#include "base/io/net_conformance.h"
#include "base/io/real_fixture.h"

namespace aiacc::io {
namespace {

Fd tcp_socket(int family = AF_INET) { return Fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

bool set(const Fd& socket, const std::string& name) {
  return setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0;
}

// A socket that uses BBR, as on a host whose choice it is; empty if the kernel does not let this user have it.
Fd bbr_socket() {
  Fd socket = tcp_socket();
  return set(socket, "bbr") ? std::move(socket) : Fd();
}

std::string refusal_of_algorithm(const std::string& wanted) {
  try {
    check_congestion(wanted);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    return error.message();
  }
  return "";
}

TEST(Congestion, AnAlgorithmByName) {
  for (const int family : {AF_INET, AF_INET6}) {
    const Fd socket = tcp_socket(family);
    if (!socket) continue;  // a kernel without IPv6
    Congestion congestion("reno");
    congestion.prepare(socket);
    EXPECT_EQ(congestion_of(socket.get()), "reno");
  }
}

TEST(Congestion, TheHostsChoiceStaysUnlessItPaces) {
  const Fd socket = tcp_socket();
  ASSERT_TRUE(set(socket, "reno"));
  Congestion().prepare(socket);
  EXPECT_EQ(congestion_of(socket.get()), "reno");
}

TEST(Congestion, SystemIsTheHostsChoiceWhateverItIs) {
  const Fd socket = bbr_socket();
  if (!socket) GTEST_SKIP() << "this kernel has no BBR for us";
  Congestion congestion("system");
  congestion.prepare(socket);
  EXPECT_EQ(congestion_of(socket.get()), "bbr");
}

// Two connected sockets, of which the first connected to the second; both of a host whose choice is BBR.
struct Pair {
  explicit Pair(Duration near) : congestion("auto", near), at_listener("auto", near) {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof place;
    auto* address = reinterpret_cast<sockaddr*>(&place);
    const Fd listener = bbr_socket();
    at_listener.prepare(listener);
    client = bbr_socket();
    congestion.prepare(client);
    prepared = congestion_of(client.get());
    EXPECT_EQ(::bind(listener.get(), address, bytes), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(getsockname(listener.get(), address, &bytes), 0);
    EXPECT_EQ(::connect(client.get(), address, bytes), 0);
    accepted = Fd(::accept(listener.get(), nullptr, nullptr));
    congestion.connected(client);
    at_listener.connected(accepted);
  }
  Congestion congestion;
  Congestion at_listener;
  std::string prepared;
  Fd client;
  Fd accepted;
};

TEST(Congestion, NearHostsDoNotUseBbr) {
  if (!bbr_socket()) GTEST_SKIP() << "this kernel has no BBR for us";
  const Pair pair(std::chrono::seconds(10));
  EXPECT_TRUE(pair.prepared == "cubic" || pair.prepared == "reno") << pair.prepared;
  EXPECT_EQ(congestion_of(pair.client.get()), pair.prepared);
  EXPECT_EQ(congestion_of(pair.accepted.get()), pair.prepared);
}

TEST(Congestion, FarHostsHaveTheirOwnChoiceBack) {
  if (!bbr_socket()) GTEST_SKIP() << "this kernel has no BBR for us";
  const Pair pair(Duration::zero());
  EXPECT_NE(pair.prepared, "bbr");
  EXPECT_EQ(congestion_of(pair.client.get()), "bbr");
  EXPECT_EQ(congestion_of(pair.accepted.get()), "bbr");
}

TEST(Congestion, WhatTheKernelDoesNotHaveIsRefusedWithWhatItHas) {
  const std::string sentence = refusal_of_algorithm("swift-sparrow");
  EXPECT_NE(sentence.find("AIACC_TCP_CONGESTION='swift-sparrow' is not possible"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("it has "), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("reno"), std::string::npos) << sentence;
  EXPECT_EQ(refusal_of_algorithm("auto"), "");
  EXPECT_EQ(refusal_of_algorithm("system"), "");
  EXPECT_EQ(refusal_of_algorithm("reno"), "");
}

TEST(Congestion, OfBothEndsOfAConnection) {
  RealFixture fixture;
  RealNet net(fixture.loop(), {.congestion = Congestion("reno")});
  for (const Address& place : fixture.places()) {
    const auto listener = net.listen(place);
    const auto pair = fixture.run(net_conformance::connected(fixture.loop(), net, *listener));
    const std::string expected = place.kind == Address::Kind::kTcp ? "reno" : "";
    EXPECT_EQ(congestion_of(pair.client->descriptor()), expected) << place.text();
    EXPECT_EQ(congestion_of(pair.server->descriptor()), expected) << place.text();
  }
}

TEST(Congestion, FarEndsOfAConnectionHaveTheHostsChoiceBack) {
  const std::string hosts_choice = congestion_of(tcp_socket().get());
  if (!hosts_choice.starts_with("bbr")) GTEST_SKIP() << "this host is not set to BBR but to " << hosts_choice;
  RealFixture fixture;
  RealNet net(fixture.loop(), {.congestion = Congestion("auto", Duration::zero())});
  const auto listener = net.listen(Address::tcp("127.0.0.1", 0));
  const auto pair = fixture.run(net_conformance::connected(fixture.loop(), net, *listener));
  EXPECT_EQ(congestion_of(pair.client->descriptor()), hosts_choice);
  EXPECT_EQ(congestion_of(pair.server->descriptor()), hosts_choice);
}

TEST(Congestion, ANetThatCannotHaveItRefusesToListen) {
  RealFixture fixture;
  RealNet net(fixture.loop(), {.congestion = Congestion("swift-sparrow")});
  EXPECT_THROW(net.listen(Address::tcp("127.0.0.1", 0)), Error);
}

}  // namespace
}  // namespace aiacc::io
