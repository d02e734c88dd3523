// The test vectors of the specification for rendezvous messages: the encoding of a version never changes.
#include "base/wire/rendezvous_messages.h"

#include <gtest/gtest.h>

#include "base/wire/agent_messages.h"
#include "base/wire/documented_vectors.h"
#include "base/wire/frame.h"

namespace aiacc::wire {
namespace {

std::string counting(std::size_t bytes, int first) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(first + static_cast<int>(i));
  return text;
}

Arrive arrive() {
  Arrive message;
  message.version = "0.1.0";
  message.job = "train-7";
  message.rank = 1;
  message.size = 3;
  message.host_name = "node-7";
  message.addresses = {"192.0.2.7", "2001:db8::7"};
  message.ports.ports = {tcp_address(40'112), {"ucx", {1, 2, 3}}};
  message.local_name = "aiacc-0123456789abcdef";
  message.dropped = 2;
  message.process = "pid:[1] time:[2] 4711 815";
  return message;
}

Roster roster() {
  Roster message;
  message.job = 0x0123456789abcdef;
  message.secret = counting(32, 0);
  message.ranks = {
      {"node-6", {"192.0.2.6"}, {{tcp_address(40'111)}}, "aiacc-6", false, "p6"},
      {"node-7", {"192.0.2.7", "2001:db8::7"}, {{tcp_address(40'112), {"ucx", {1, 2, 3}}}}, "aiacc-7", true, "p7"},
      {"node-8", {}, {{tcp_address(40'113)}}, "", false, ""}};
  return message;
}

StoredRendezvous stored() {
  StoredRendezvous rendezvous;
  const std::string secret = counting(32, 0x20);
  std::memcpy(rendezvous.secret.data(), secret.data(), secret.size());
  rendezvous.port = 4242;
  rendezvous.addresses = {"192.0.2.6", "127.0.0.1"};
  return rendezvous;
}

// A frame without its length and type.
template <Message T>
Bytes read_again(const std::string& digits) {
  FrameBuffer buffer;
  const Bytes raw = bytes_of_hex(digits);
  const std::span<std::byte> space = buffer.space();
  if (raw.size() > space.size()) return {};
  std::copy(raw.begin(), raw.end(), space.begin());
  buffer.commit(raw.size());
  const std::optional<Frame> frame = buffer.next();
  if (!frame || frame->type != T::kType) return {};
  return encode_frame(frame->template as<T>());
}

TEST(RendezvousMessages, TheVectorsOfTheSpecificationHold) {
  const auto documented = documented_vectors("Rendezvous");
  if (!documented) GTEST_SKIP() << "AIACC_SOURCE does not say where the sources are";
  std::map<std::string, std::string> computed;
  computed["arrive"] = hex(encode_frame(arrive()));
  computed["waiting"] = hex(encode_frame(Waiting{"2 of 3 ranks came"}));
  computed["join refused"] = hex(encode_frame(JoinRefused{6, "another job meets here"}));
  computed["roster"] = hex(encode_frame(roster()));
  computed["reconnect port"] = hex(encode_frame(ReconnectPort{40'114}));
  computed["resume"] = hex(encode_frame(Resume{3}));
  computed["local peers"] = hex(encode_frame(LocalPeers{1}));
  computed["host map"] = hex(encode_frame(HostMap{{0, 1, 1}}));
  computed["share segment"] = hex(encode_frame(ShareSegment{0x0123456789abcdef}));
  computed["rank lost"] = hex(encode_frame(RankLost{2, "rank 2 went away"}));
  computed["leave"] = hex(encode_frame(Leave{3}));
  computed["gone"] = hex(encode_frame(Gone{}));
  computed["stored rendezvous"] = hex(encode(stored()));
  EXPECT_EQ(*documented, computed);
}

TEST(RendezvousMessages, WhatTheSpecificationHasIsReadAndWrittenAgain) {
  auto documented = documented_vectors("Rendezvous");
  if (!documented) GTEST_SKIP() << "AIACC_SOURCE does not say where the sources are";
  const auto expect_same = [&](const char* name, const Bytes& again) {
    EXPECT_EQ((*documented)[name], hex(again)) << name;
    EXPECT_FALSE(again.empty()) << name;
  };
  expect_same("arrive", read_again<Arrive>((*documented)["arrive"]));
  expect_same("waiting", read_again<Waiting>((*documented)["waiting"]));
  expect_same("join refused", read_again<JoinRefused>((*documented)["join refused"]));
  expect_same("roster", read_again<Roster>((*documented)["roster"]));
  expect_same("reconnect port", read_again<ReconnectPort>((*documented)["reconnect port"]));
  expect_same("resume", read_again<Resume>((*documented)["resume"]));
  expect_same("local peers", read_again<LocalPeers>((*documented)["local peers"]));
  expect_same("host map", read_again<HostMap>((*documented)["host map"]));
  expect_same("share segment", read_again<ShareSegment>((*documented)["share segment"]));
  expect_same("rank lost", read_again<RankLost>((*documented)["rank lost"]));
  expect_same("leave", read_again<Leave>((*documented)["leave"]));
  expect_same("gone", read_again<Gone>((*documented)["gone"]));
  const Bytes raw = bytes_of_hex((*documented)["stored rendezvous"]);
  expect_same("stored rendezvous", encode(decode<StoredRendezvous>(raw, "what a store has")));
}

}  // namespace
}  // namespace aiacc::wire
