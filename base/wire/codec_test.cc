#include "base/wire/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/wire/agent_messages.h"
#include "base/wire/frame.h"

namespace aiacc::wire {
namespace {

enum class Colour : std::uint8_t { kRed = 1, kBlue = 200 };

struct Inner {
  std::uint16_t number = 0;
  std::string name;
  auto fields() { return std::tie(number, name); }
  bool operator==(const Inner&) const = default;
};

struct Everything {
  static constexpr std::uint16_t kType = 77;
  std::uint8_t small = 0;
  std::int16_t negative = 0;
  std::uint32_t word = 0;
  std::int64_t wide = 0;
  bool truth = false;
  Colour colour = Colour::kRed;
  std::string text;
  std::vector<std::uint64_t> numbers;
  std::vector<std::string> names;
  std::vector<Inner> inner;
  auto fields() { return std::tie(small, negative, word, wide, truth, colour, text, numbers, names, inner); }
  bool operator==(const Everything&) const = default;
};

Everything sample() {
  Everything value;
  value.small = 7;
  value.negative = -2;
  value.word = 0xdeadbeef;
  value.wide = std::numeric_limits<std::int64_t>::min();
  value.truth = true;
  value.colour = Colour::kBlue;
  value.text = std::string("a\0b", 3);
  value.numbers = {1, ~std::uint64_t{0}};
  value.names = {"", "x", std::string(300, 'y')};
  value.inner = {{1, "one"}, {2, ""}};
  return value;
}

Error error_of(const Bytes& bytes) {
  try {
    decode<Everything>(bytes, "a test message");
  } catch (const Error& error) {
    return error;
  }
  return Error(Code::kOk, "it was taken");
}

TEST(Codec, EveryKindOfFieldComesBack) {
  EXPECT_EQ(decode<Everything>(encode(sample()), "a test message"), sample());
  EXPECT_EQ(decode<Everything>(encode(Everything{}), "a test message"), Everything{});
}

TEST(Codec, TheLayoutIsLittleEndianWithThirtyTwoBitCounts) {
  RankLost message;
  message.rank = 0x01020304;
  message.sentence = "hi";
  const auto number = [](int value) { return static_cast<std::byte>(value); };
  EXPECT_EQ(encode_frame(message),
            (Bytes{number(12), number(0), number(0), number(0), number(4), number(0), number(4), number(3), number(2),
                   number(1), number(2), number(0), number(0), number(0), number('h'), number('i')}));
}

TEST(Codec, EveryTruncationIsRefusedWithASentence) {
  const Bytes whole = encode(sample());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const Error error = error_of(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)));
    ASSERT_EQ(error.code(), Code::kProtocol) << length << ": " << error.message();
    ASSERT_TRUE(error.message().starts_with("a test message ")) << error.message();
  }
}

TEST(Codec, BytesTooManyAreRefused) {
  Bytes bytes = encode(sample());
  bytes.push_back(std::byte{0});
  EXPECT_EQ(error_of(bytes).message(), "a test message has 1 bytes too many");
}

TEST(Codec, ATruthValueIsZeroOrOne) {
  Bytes bytes = encode(sample());
  bytes[1 + 2 + 4 + 8] = std::byte{2};
  EXPECT_NE(error_of(bytes).message().find("truth value of 2"), std::string::npos);
}

TEST(Codec, ACountThatTheBytesCannotHoldAllocatesNothing) {
  struct Numbers {
    std::vector<Inner> inner;
    auto fields() { return std::tie(inner); }
  };
  const auto refusal = [](const Bytes& lie) {
    try {
      decode<Numbers>(lie, "a lie");
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  EXPECT_EQ(refusal(Bytes(4, std::byte{0xff})),
            "a lie announces 4294967295 elements of at least 6 bytes with 0 bytes left");
  Bytes one_too_many;
  Writer(one_too_many).put(std::uint32_t{3});
  one_too_many.resize(4 + 17);
  EXPECT_EQ(refusal(one_too_many), "a lie announces 3 elements of at least 6 bytes with 17 bytes left");
}

// Random bytes, and valid messages with a few bytes changed, either throw kProtocol or decode to a message that encodes
// to the same bytes.
TEST(Codec, GarbageIsRefusedOrMeansSomething) {
  std::uint64_t state = 20240229;
  const auto next = [&state] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state >> 33);
  };
  int taken = 0;
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes = round % 2 == 0 ? encode(sample()) : Bytes(next() % 200);
    if (round % 2 == 0) {
      for (std::uint32_t change = next() % 4; change > 0; --change)
        bytes[next() % bytes.size()] = static_cast<std::byte>(next());
    } else {
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(next() % 3 == 0 ? next() : 0);
    }
    try {
      const Everything value = decode<Everything>(bytes, "garbage");
      ASSERT_EQ(encode(value), bytes);
      ++taken;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Code::kProtocol);
      ++refused;
    }
  }
  EXPECT_GT(taken, 1000);
  EXPECT_GT(refused, 1000);
}

void feed(FrameBuffer& buffer, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::span<std::byte> space = buffer.space();
    const std::size_t part = std::min(space.size(), bytes.size());
    std::copy_n(bytes.begin(), part, space.begin());
    buffer.commit(part);
    bytes = bytes.subspan(part);
  }
}

TEST(FrameBuffer, FramesComeOutWholeHoweverTheBytesComeIn) {
  Bytes stream;
  std::vector<std::size_t> lengths{0, 1, 100, 5'000, 70'000, 3};
  for (const std::size_t length : lengths) {
    const Bytes frame = encode_frame(Refused{1, std::string(length, 'r')});
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{4096}, stream.size()}) {
    FrameBuffer buffer;
    std::vector<std::size_t> seen;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      feed(buffer, std::span(stream).subspan(at, std::min(piece, stream.size() - at)));
      while (const auto frame = buffer.next()) seen.push_back(frame->as<Refused>().sentence.size());
    }
    EXPECT_EQ(seen, lengths);
    EXPECT_EQ(buffer.pending(), 0u);
  }
}

TEST(FrameBuffer, LengthsOutOfBoundsAreRefusedAtOnce) {
  for (const std::uint32_t length : {0u, 1u, kMaxFrameBytes + 1, ~0u}) {
    FrameBuffer buffer;
    Bytes header;
    Writer(header).put(length);
    Writer(header).put(std::uint16_t{1});
    feed(buffer, header);
    EXPECT_THROW(buffer.next(), Error) << length;
  }
  FrameBuffer limited(100);
  feed(limited, encode_frame(Refused{1, std::string(200, 'r')}));
  EXPECT_THROW(limited.next(), Error);
}

// The bytes of a message that was taken out or moved within the buffer are wiped, because they may have been a secret.
TEST(FrameBuffer, NothingOfAMessageStays) {
  const Bytes frame = encode_frame(Refused{1, std::string(100, 's')});
  const std::size_t half = frame.size() - 20;
  FrameBuffer buffer;
  const std::span<std::byte> place = buffer.space();
  ASSERT_GE(place.size(), 2 * frame.size());
  std::copy(frame.begin(), frame.end(), place.begin());
  std::copy_n(frame.begin(), half, place.begin() + static_cast<std::ptrdiff_t>(frame.size()));
  buffer.commit(frame.size() + half);
  ASSERT_TRUE(buffer.next().has_value());
  EXPECT_EQ(std::count(place.begin(), place.begin() + static_cast<std::ptrdiff_t>(frame.size()), std::byte{'s'}), 0);
  ASSERT_FALSE(buffer.next().has_value());
  const std::span<std::byte> rest = buffer.space();
  EXPECT_EQ(std::count(rest.begin(), rest.end(), std::byte{'s'}), 0);
}

TEST(Frame, AnotherTypeIsASentenceWithBoth) {
  FrameBuffer buffer;
  feed(buffer, encode_frame(Leave{}));
  const auto frame = buffer.next();
  ASSERT_TRUE(frame.has_value());
  EXPECT_NO_THROW(frame->as<Leave>());
  try {
    frame->as<Hello>();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kProtocol);
    EXPECT_NE(error.message().find("of type 5 came where one of type 1"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace aiacc::wire
