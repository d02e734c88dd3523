#include "transports/service/host_streams.h"

#include <gtest/gtest.h>

#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/io/real_loop.h"
#include "transports/host/memfd_domain.h"

namespace aiacc {
namespace {

constexpr std::uint64_t kKey = 4711;

// Whose messages have a place.
struct Reader final : MessageReceiver, HostStreams::Observer {
  Placement on_header(int, const MessageHeader& header) noexcept override {
    ++offered;
    place.resize(header.length);
    return {Placement::Action::kInto, {place.data(), place.size()}};
  }
  void on_placed(int, const MessageHeader&) noexcept override { ++placed; }
  void on_peer_lost(int, std::exception_ptr) noexcept override {}
  void stream_broken(int, const Error& why) noexcept override { broken = why.message(); }
  std::vector<std::byte> place;
  int offered = 0, placed = 0;
  std::string broken;
};
struct Told final : SendCompletion {
  void sent(std::exception_ptr) noexcept override { ++count; }
  int count = 0;
};

MessageHeader service_message(std::size_t bytes) {
  MessageHeader header;
  header.kind = MessageKind::kService;
  header.length = header.total = bytes;
  return header;
}

// Two ranks of a host: what rank 4 writes, rank 6 reads.
struct Pair {
  Pair() {
    loops[0].run_until([this] { return writer->reads(1); });
  }
  // Whether payloads are read in the writer's memory.
  bool lends() {
    loops[1].look();  // says that it can
    return readers.can_read(0);
  }
  void post(const std::vector<std::byte>& payload) { writer->post(1, service_message(payload.size()), payload, told); }
  void leave() {
    writers->say_leaving();
    loops[0].run(writer->close());
  }
  void look() {
    for (int look = 0; look < 100; ++look) loops[1].look();
  }
  ~Pair() { loops[1].run(streams.close()); }

  static constexpr std::uint64_t kNonce = 7;
  const HostSegment segment = HostSegment::create(2, std::uint64_t{64} << 20, kNonce);
  const std::shared_ptr<SegmentMapping> mapping = SegmentMapping::map(segment.descriptor(), kNonce, 2);
  io::RealLoop loops[2];
  MemfdDomain readers{mapping, 1, loops[1]};
  std::optional<MemfdDomain> writers{std::in_place, mapping, 0, loops[0]};
  Reader nobody, reader;
  Told told;
  std::optional<HostStreams> writer{std::in_place, *writers, kKey, std::vector{4, 6}, nobody, nobody};
  HostStreams streams{readers, kKey, std::vector{4, 6}, reader, reader};
};

constexpr int kInTheRing = HostStreams::kRingBytes / (HostStreams::kFetchedBytes + sizeof(MessageHeader));

// A rank says something to another one that is slow, and leaves.
TEST(HostStreams, WhatAWriterSaidLastIsReadAfterItHasGone) {
  for (const bool has_read_some : {false, true}) {
    Pair pair;
    const std::vector<std::byte> payload(HostStreams::kFetchedBytes - 1, std::byte{0x5a});
    for (int i = 0; i < kInTheRing; ++i) pair.post(payload);
    if (has_read_some) pair.loops[1].run_until([&] { return pair.reader.placed > 0; });
    pair.loops[0].run(pair.writer->close());
    pair.writer.reset();
    const HostRange other = pair.writers->allocate(HostStreams::kRingBytes);
    std::memset(pair.writers->view(0, other), 0xff, other.bytes);
    pair.writers.reset();
    pair.look();
    EXPECT_EQ(pair.reader.broken, "");
    EXPECT_EQ(pair.reader.placed, kInTheRing);
    EXPECT_EQ(pair.reader.place, payload);
  }
}

// What had no room in the ring, or was to be read in the memory of the rank that has left.
TEST(HostStreams, WhatAWriterGaveUpBreaksItsStream) {
  for (const bool lent : {false, true}) {
    Pair pair;
    if (!pair.lends() && lent) GTEST_SKIP() << "this system does not let a process read another one's memory";
    const std::vector<std::byte> payload(HostStreams::kFetchedBytes - (lent ? 0 : 1), std::byte{0x5a});
    for (int i = 0; i <= kInTheRing; ++i) pair.post(payload);
    pair.leave();
    pair.loops[1].run_until([&] { return !pair.reader.broken.empty(); });
    EXPECT_EQ(pair.reader.broken, "rank 4 has left the job with messages to rank 6 that it had not sent");
    EXPECT_EQ(pair.reader.placed, lent ? 0 : kInTheRing);
    EXPECT_EQ(pair.told.count, kInTheRing + 1);
  }
}

TEST(HostStreams, WhatWasReadInAWritersMemoryBreaksNothingWhenItLeaves) {
  Pair pair;
  if (!pair.lends()) GTEST_SKIP() << "this system does not let a process read another one's memory";
  const std::vector<std::byte> payload(HostStreams::kFetchedBytes, std::byte{0x5a});
  pair.post(payload);
  EXPECT_EQ(pair.told.count, 0) << "it is lent";
  pair.loops[1].run_until([&] { return pair.reader.placed > 0; });
  pair.leave();
  pair.look();
  EXPECT_EQ(pair.reader.broken, "");
  EXPECT_EQ(pair.told.count, 1);
}

}  // namespace
}  // namespace aiacc
