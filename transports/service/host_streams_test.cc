#include "transports/service/host_streams.h"

#include <gtest/gtest.h>

#include <cstring>
#include <exception>
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

// A rank says something to another one that is slow, and leaves.
TEST(HostStreams, WhatAWriterSaidLastIsReadAfterItHasGone) {
  constexpr std::uint64_t kNonce = 7;
  for (const bool has_read_some : {false, true}) {
    const HostSegment segment = HostSegment::create(2, std::uint64_t{64} << 20, kNonce);
    const auto mapping = SegmentMapping::map(segment.descriptor(), kNonce, 2);
    io::RealLoop loops[2];
    MemfdDomain readers(mapping, 1, loops[1]);
    std::optional<MemfdDomain> writers(std::in_place, mapping, 0, loops[0]);
    Reader nobody, reader;
    Told told;
    std::optional<HostStreams> writer(std::in_place, *writers, kKey, std::vector{0, 1}, nobody, nobody);
    HostStreams streams(readers, kKey, std::vector{0, 1}, reader, reader);
    loops[0].run_until([&] { return writer->reads(1); });
    const std::vector<std::byte> payload(HostStreams::kFetchedBytes - 1, std::byte{0x5a});
    constexpr int kInTheRing = HostStreams::kRingBytes / (HostStreams::kFetchedBytes + sizeof(MessageHeader));
    for (int i = 0; i < kInTheRing; ++i) writer->post(1, service_message(payload.size()), payload, told);
    if (has_read_some) loops[1].run_until([&] { return reader.placed > 0; });
    loops[0].run(writer->close());
    writer.reset();
    const HostRange other = writers->allocate(HostStreams::kRingBytes);
    std::memset(writers->view(0, other), 0xff, other.bytes);
    writers.reset();
    for (int look = 0; look < 100; ++look) loops[1].look();
    EXPECT_EQ(reader.broken, "");
    EXPECT_EQ(reader.placed, kInTheRing);
    EXPECT_EQ(reader.place, payload);
    loops[1].run(streams.close());
  }
}

// What had no room in the ring, or was to be read in the memory of the rank that has left.
TEST(HostStreams, WhatAWriterGaveUpBreaksItsStream) {
  constexpr std::uint64_t kNonce = 7;
  for (const bool lends : {false, true}) {
    const HostSegment segment = HostSegment::create(2, std::uint64_t{64} << 20, kNonce);
    const auto mapping = SegmentMapping::map(segment.descriptor(), kNonce, 2);
    io::RealLoop loops[2];
    MemfdDomain readers(mapping, 1, loops[1]), writers(mapping, 0, loops[0]);
    Reader nobody, reader;
    Told told;
    HostStreams writer(writers, kKey, std::vector{4, 6}, nobody, nobody);
    HostStreams streams(readers, kKey, std::vector{4, 6}, reader, reader);
    loops[0].run_until([&] { return writer.reads(1); });
    if (lends && !readers.can_read(0)) GTEST_SKIP() << "this system does not let a process read another one's memory";
    loops[1].look();  // says that it can
    const std::vector<std::byte> payload(HostStreams::kFetchedBytes - (lends ? 0 : 1), std::byte{0x5a});
    constexpr int kInTheRing = HostStreams::kRingBytes / (HostStreams::kFetchedBytes + sizeof(MessageHeader));
    for (int i = 0; i <= kInTheRing; ++i) writer.post(1, service_message(payload.size()), payload, told);
    writers.say_leaving();
    loops[0].run(writer.close());
    loops[1].run_until([&] { return !reader.broken.empty(); });
    EXPECT_EQ(reader.broken, "rank 4 has left the job with messages to rank 6 that it had not sent");
    EXPECT_EQ(reader.placed, lends ? 0 : kInTheRing);
    EXPECT_EQ(told.count, kInTheRing + 1);
    loops[1].run(streams.close());
  }
}

TEST(HostStreams, WhatWasReadInAWritersMemoryBreaksNothingWhenItLeaves) {
  constexpr std::uint64_t kNonce = 7;
  const HostSegment segment = HostSegment::create(2, std::uint64_t{64} << 20, kNonce);
  const auto mapping = SegmentMapping::map(segment.descriptor(), kNonce, 2);
  io::RealLoop loops[2];
  MemfdDomain readers(mapping, 1, loops[1]), writers(mapping, 0, loops[0]);
  if (!readers.can_read(0)) GTEST_SKIP() << "this system does not let a process read another one's memory";
  Reader nobody, reader;
  Told told;
  HostStreams writer(writers, kKey, std::vector{0, 1}, nobody, nobody);
  HostStreams streams(readers, kKey, std::vector{0, 1}, reader, reader);
  loops[0].run_until([&] { return writer.reads(1); });
  loops[1].look();
  const std::vector<std::byte> payload(HostStreams::kFetchedBytes, std::byte{0x5a});
  writer.post(1, service_message(payload.size()), payload, told);
  EXPECT_EQ(told.count, 0) << "it is lent";
  loops[1].run_until([&] { return reader.placed > 0; });
  writers.say_leaving();
  loops[0].run(writer.close());
  for (int look = 0; look < 100; ++look) loops[1].look();
  EXPECT_EQ(reader.broken, "");
  EXPECT_EQ(told.count, 1);
  loops[1].run(streams.close());
}

}  // namespace
}  // namespace aiacc
