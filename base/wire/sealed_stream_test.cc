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

class SealedStreamTest : public testing::TestWithParam<Protection> {
 protected:
  SealedStreamTest() { std::tie(left_, right_) = io::stream_pair(loop_, "the pair"); }

  void run(Task<void>& task) {
    loop_.run_until([&] { return task.done(); });
    task.take();
  }
  // The bytes on the wire for `plain`, as the left end seals it.
  Bytes sealed(const Bytes& plain) {
    SealedStream sealing(loop_, std::move(left_), how_, secret_of(1), secret_of(2));
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
  // The plain bytes that a right end accepts of `raw`, and the error that ends it.
  Bytes opened(const Bytes& raw, Error* error, const Secret& key = secret_of(1)) {
    auto [from, to] = io::stream_pair(loop_, "the other pair");
    SealedStream opening(loop_, std::move(to), how_, secret_of(2), key);
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

  Protection how_ = GetParam();
  // The bytes of a head, and those of a record in addition to its plain bytes.
  std::size_t head_ = how_ == Protection::kEncrypted ? 12 : 28;
  std::size_t around_ = how_ == Protection::kEncrypted ? 12 + 17 : 28;
  std::size_t preface_ = how_ == Protection::kEncrypted ? 24 : 0;
  std::size_t record_ = how_ == Protection::kEncrypted ? 16 << 10 : 64 << 10;

  io::RealLoop loop_;
  Stop stop_;
  std::unique_ptr<io::Stream> left_, right_;
};

std::string name_of(const testing::TestParamInfo<Protection>& info) {
  constexpr std::array<const char*, 3> kNames = {"Encrypted", "Poly", "Fastest"};
  return kNames[info.index];
}
// A processor without AES instructions authenticates with kPoly only.
INSTANTIATE_TEST_SUITE_P(Kinds, SealedStreamTest,
                         testing::Values(Protection::kEncrypted, Protection::kPoly, fastest_authentication()), name_of);

TEST_P(SealedStreamTest, BytesComeAsTheyWereWrittenUntilTheEnd) {
  const Bytes plain = pattern(300'000);
  const Bytes raw = sealed(plain);
  EXPECT_GE(raw.size(), plain.size() + preface_ + 6 * around_);
  const bool hidden = std::search(raw.begin(), raw.end(), plain.begin() + 1000, plain.begin() + 1032) == raw.end();
  EXPECT_EQ(hidden, how_ == Protection::kEncrypted);
  Error error(Code::kOk, "");
  EXPECT_TRUE(opened(raw, &error) == plain);
  EXPECT_EQ(error.code(), Code::kOk) << error.message();
}

TEST_P(SealedStreamTest, AChangedBitIsNoticedAndNothingOfItsRecordIsTaken) {
  const Bytes plain = pattern(200'000);
  Bytes raw = sealed(plain);
  raw[preface_ + around_ + record_ + head_ + 100] ^= std::byte{1};
  Error error(Code::kOk, "");
  const Bytes got = opened(raw, &error);
  EXPECT_TRUE(std::equal(got.begin(), got.end(), plain.begin()));
  EXPECT_LE(got.size(), record_);
  EXPECT_EQ(error.code(), Code::kProtocol);
  EXPECT_EQ(error.message(),
            "data from the other pair is not authentic: the other end did not send it at this position");
}

// Also if the changed byte makes the record longer, so that its end never arrives.
TEST_P(SealedStreamTest, AnyChangedByteIsNoticedBeforeTheEndAndNothingFollowsIt) {
  const Bytes plain = pattern(100);
  const Bytes raw = sealed(plain);
  for (std::size_t at = 0; at < raw.size(); ++at) {
    Bytes changed = raw;
    changed[at] ^= std::byte{0x40};
    Error error(Code::kOk, "");
    const Bytes got = opened(changed, &error);
    EXPECT_EQ(error.code(), Code::kProtocol) << at << ": " << error.message();
    EXPECT_TRUE(got.empty() || got == plain) << at;
  }
}

TEST_P(SealedStreamTest, NoRecordIsTakenTwiceLeftOutOrInAnothersPlace) {
  const Bytes raw = sealed(pattern(2 * record_));
  const auto part = [&](std::size_t from, std::size_t bytes) {
    return Bytes(raw.begin() + static_cast<std::ptrdiff_t>(from),
                 raw.begin() + static_cast<std::ptrdiff_t>(from + bytes));
  };
  std::uint32_t length = 0;
  Reader(std::span(raw).subspan(preface_, 4), "a length").get(length);
  const std::size_t one = head_ + length;
  Bytes twice = part(0, preface_ + one), without = part(0, preface_);
  const Bytes again = part(preface_, one), rest = part(preface_ + one, raw.size() - preface_ - one);
  twice.insert(twice.end(), again.begin(), again.end());
  without.insert(without.end(), rest.begin(), rest.end());
  for (const Bytes& changed : {twice, without}) {
    Error error(Code::kOk, "");
    opened(changed, &error);
    EXPECT_EQ(error.code(), Code::kProtocol);
  }
}

TEST_P(SealedStreamTest, ACutAnywhereIsABrokenConnectionAndNoEnd) {
  const Bytes plain = pattern(100);
  const Bytes raw = sealed(plain);
  for (std::size_t length = 0; length < raw.size(); ++length) {
    Error error(Code::kOk, "");
    const Bytes got = opened(Bytes(raw.begin(), raw.begin() + static_cast<std::ptrdiff_t>(length)), &error);
    EXPECT_EQ(error.code(), Code::kPeerFailed) << length;
    EXPECT_TRUE(got.empty() || got == plain);
  }
}

TEST_P(SealedStreamTest, AnotherKeyOpensNothing) {
  Error error(Code::kOk, "");
  EXPECT_TRUE(opened(sealed(pattern(10)), &error, secret_of(3)).empty());
  EXPECT_EQ(error.code(), Code::kProtocol);
}

TEST_P(SealedStreamTest, ALengthThatTheOtherEndDidNotAnnounceIsNotWaitedFor) {
  const Bytes raw = sealed(pattern(2 * record_));
  for (const std::uint32_t length : {0u, 16u, 1000u, 0xff000000u}) {
    Bytes changed(raw.begin(), raw.begin() + static_cast<std::ptrdiff_t>(preface_));
    Writer(changed).put(length);
    changed.insert(changed.end(), raw.begin() + static_cast<std::ptrdiff_t>(preface_ + 4), raw.end());
    Error error(Code::kOk, "");
    EXPECT_TRUE(opened(changed, &error).empty());
    EXPECT_EQ(error.message(),
              "a record header from the other pair is not authentic: the other end did not send it at this position");
  }
}

Task<void> write_forever(io::Stream* to, int* written, Stop* stop) {
  const Bytes piece(1000);
  for (;;) {
    co_await to->write_some(piece, *stop);
    ++*written;
  }
}

// Half of the record was written: it can be neither taken back nor repeated.
TEST_P(SealedStreamTest, AStopInTheMiddleOfARecordEndsTheWriting) {
  SealedStream sealing(loop_, std::move(left_), how_, secret_of(1), secret_of(2));
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

// The key is the one to the listener in the handshake's vectors.
TEST_P(SealedStreamTest, TheVectorOfTheSpecificationHolds) {
  auto keys = documented_vectors("The handshake");
  auto documented = documented_vectors("Data connections");
  if (!documented) GTEST_SKIP() << "AIACC_SOURCE does not say where the sources are";
  const Bytes key = bytes_of_hex((*keys)["key to the listener"]);
  const char* name = how_ == Protection::kEncrypted ? "encrypted to the listener"
                     : how_ == Protection::kAes     ? "proved by aes to the listener"
                                                    : "proved by poly to the listener";
  const Bytes raw = bytes_of_hex((*documented)[name]);
  ASSERT_EQ(key.size(), Secret::kBytes);
  ASSERT_EQ(raw.size(), preface_ + 2 * around_ + 5);
  const Secret secret(std::span<const std::byte, Secret::kBytes>(key.data(), key.size()));
  Error error(Code::kOk, "");
  const Bytes plain = opened(raw, &error, secret);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(plain.data()), plain.size()), "aiacc");
  EXPECT_EQ(error.code(), Code::kOk) << error.message();
}

}  // namespace
}  // namespace aiacc::wire
