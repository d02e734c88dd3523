#include "base/wire/sealed_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "base/io/real_loop.h"
#include "base/io/real_net.h"
#include "base/wire/documented_vectors.h"

namespace aiacc::wire {
namespace {

Secret secret_of(int salt) {
  std::array<std::byte, Secret::kBytes> bytes;
  bytes.fill(static_cast<std::byte>(salt));
  return Secret(bytes);
}

Bytes pattern(std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

Task<void> write(io::Stream* to, const Bytes* bytes, Stop* stop) {
  std::span<const std::byte> left = *bytes;
  while (!left.empty()) {
    const std::array<io::Piece, 3> pieces = {left.first(left.size() / 3), io::Piece(), left.subspan(left.size() / 3)};
    const std::size_t moved = co_await to->write_gathered(pieces, *stop);
    left = left.subspan(moved);
  }
  to->shutdown_write();
}

Task<void> read(io::Stream* from, Bytes* bytes, Error* error, Stop* stop) {
  Bytes part(10'000);
  try {
    for (;;) {
      const std::size_t moved = co_await from->read_some(part, *stop);
      if (moved == 0) co_return;
      bytes->insert(bytes->end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(moved));
    }
  } catch (const Error& caught) {
    *error = caught;
  }
}

class SealedStreamTest : public testing::Test {
 protected:
  SealedStreamTest() { std::tie(left_, right_) = io::stream_pair(loop_, "the pair"); }

  void run(Task<void>& task) {
    loop_.run_until([&] { return task.done(); });
    task.take();
  }
  // What the left end seals of `plain`, as it goes over the wire.
  Bytes sealed(const Bytes& plain) {
    SealedStream sealing(loop_, std::move(left_), secret_of(1), secret_of(2));
    Bytes raw;
    Error error(Code::kOk, "");
    Task<void> writing = write(&sealing, &plain, &stop_);
    Task<void> reading = read(right_.get(), &raw, &error, &stop_);
    writing.start();
    reading.start();
    run(writing);
    run(reading);
    EXPECT_EQ(error.code(), Code::kOk) << error.message();
    return raw;
  }
  // What a right end takes of `raw`, and how it ends.
  Bytes opened(const Bytes& raw, Error* error, const Secret& key = secret_of(1)) {
    auto [from, to] = io::stream_pair(loop_, "the other pair");
    SealedStream opening(loop_, std::move(to), secret_of(2), key);
    Bytes plain;
    Task<void> reading = read(&opening, &plain, error, &stop_);
    reading.start();
    std::span<const std::byte> left = raw;
    Task<void> writing = io::write_all(*from, left, stop_);
    writing.start();
    loop_.run_until([&] { return writing.done(); });
    from->shutdown_write();
    run(reading);
    return plain;
  }

  io::RealLoop loop_;
  Stop stop_;
  std::unique_ptr<io::Stream> left_, right_;
};

TEST_F(SealedStreamTest, BytesComeAsTheyWereWrittenUntilTheEnd) {
  const Bytes plain = pattern(300'000);
  const Bytes raw = sealed(plain);
  EXPECT_GT(raw.size(), plain.size() + 24 + 5 * 21);
  EXPECT_EQ(std::search(raw.begin(), raw.end(), plain.begin() + 1000, plain.begin() + 1032), raw.end());
  Error error(Code::kOk, "");
  EXPECT_TRUE(opened(raw, &error) == plain);
  EXPECT_EQ(error.code(), Code::kOk) << error.message();
}

TEST_F(SealedStreamTest, AChangedBitIsNoticedAndNothingOfItsRecordIsTaken) {
  const Bytes plain = pattern(100'000);
  Bytes raw = sealed(plain);
  raw[24 + 21 + SealedStream::kRecordBytes + 100] ^= std::byte{1};
  Error error(Code::kOk, "");
  EXPECT_EQ(opened(raw, &error).size(), SealedStream::kRecordBytes);
  EXPECT_EQ(error.code(), Code::kProtocol);
  EXPECT_EQ(error.message(), "what came from the other pair was not sealed by the other end, or not in this place");
}

TEST_F(SealedStreamTest, ACutAnywhereIsABrokenConnectionAndNoEnd) {
  const Bytes plain = pattern(100);
  const Bytes raw = sealed(plain);
  for (std::size_t length = 0; length < raw.size(); ++length) {
    Error error(Code::kOk, "");
    const Bytes got = opened(Bytes(raw.begin(), raw.begin() + static_cast<std::ptrdiff_t>(length)), &error);
    EXPECT_EQ(error.code(), Code::kPeerFailed) << length;
    EXPECT_TRUE(got.empty() || got == plain);
  }
}

TEST_F(SealedStreamTest, AnotherKeyOpensNothing) {
  Error error(Code::kOk, "");
  EXPECT_TRUE(opened(sealed(pattern(10)), &error, secret_of(3)).empty());
  EXPECT_EQ(error.code(), Code::kProtocol);
}

TEST_F(SealedStreamTest, AnAnnouncedLengthIsBounded) {
  const Bytes raw = sealed(pattern(2 * SealedStream::kRecordBytes));
  for (const std::uint32_t length : {0u, 16u, 16402u, 0xff000000u}) {
    Bytes changed(raw.begin(), raw.begin() + 24);
    Writer(changed).put(length);
    changed.insert(changed.end(), raw.begin() + 28, raw.end());
    Error error(Code::kOk, "");
    EXPECT_TRUE(opened(changed, &error).empty());
    EXPECT_EQ(error.message(),
              "the other pair announces a record of " + std::to_string(length) + " bytes; 17 to 16401 are possible");
  }
}

Task<void> write_forever(io::Stream* to, int* written, Stop* stop) {
  const Bytes piece(1000);
  for (;;) {
    co_await to->write_some(piece, *stop);
    ++*written;
  }
}

// Half of it is on the way: it can be neither taken back nor said again.
TEST_F(SealedStreamTest, AStopInTheMiddleOfARecordEndsTheWriting) {
  SealedStream sealing(loop_, std::move(left_), secret_of(1), secret_of(2));
  Stop stopped;
  int written = 0;
  Task<void> writing = write_forever(&sealing, &written, &stopped);
  writing.start();
  for (int idle = 0, before = 0; idle < 100; idle = written == before ? idle + 1 : 0) {
    before = written;
    loop_.look();
  }
  ASSERT_GT(written, 0);
  stopped.request(std::make_exception_ptr(Error(Code::kTimeout, "too late")));
  loop_.run_until([&] { return writing.done(); });
  EXPECT_THROW(writing.take(), Error);
  const Bytes more = pattern(10);
  Task<void> again = io::write_all(sealing, more, stop_);
  again.start();
  ASSERT_TRUE(again.done()) << "what was stopped would come too";
  try {
    again.take();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "a write to the pair was stopped in the middle of a record");
  }
}

TEST_F(SealedStreamTest, TheVectorOfTheSpecificationHolds) {
  auto keys = documented_vectors("The handshake");
  auto documented = documented_vectors("Data connections");
  if (!documented) GTEST_SKIP() << "AIACC_SOURCE does not say where the sources are";
  const Bytes key = bytes_of_hex((*keys)["key to the listener"]);
  const Bytes raw = bytes_of_hex((*documented)["encrypted to the listener"]);
  ASSERT_EQ(key.size(), Secret::kBytes);
  ASSERT_EQ(raw.size(), 24u + 4 + 17 + 5 + 4 + 17);
  Error error(Code::kOk, "");
  const Bytes plain = opened(raw, &error, Secret(std::span<const std::byte, Secret::kBytes>(key.data(), key.size())));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(plain.data()), plain.size()), "aiacc");
  EXPECT_EQ(error.code(), Code::kOk) << error.message();
}

}  // namespace
}  // namespace aiacc::wire
