#include "groupcomm/gradient/word.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/sim/random.h"

namespace aiacc::gradient {
namespace {

Word random_word(std::size_t tensors, sim::Random& random) {
  Word word;
  word.reset_to_empty(tensors);
  for (std::size_t tensor = 0; tensor < tensors; ++tensor)
    if (random.below(2) == 0) word.set_ready(tensor);
  for (Word::All flag : {Word::kAllFlushed, Word::kAllJoined})
    if (random.below(2) == 0) word.set_all(flag);
  for (std::uint32_t flag = 1; flag <= Word::kJoining; flag <<= 1)
    if (random.below(2) == 0) word.set_any(static_cast<Word::Any>(flag));
  for (std::uint8_t field = 0; field < Word::kFields; ++field)
    if (random.below(2) == 0) word.set_number(static_cast<Word::Field>(field), random.next() >> random.below(64));
  return word;
}

Word merged(Word one, const Word& other) {
  one.merge(other);
  return one;
}

std::vector<std::byte> encoded(const Word& word) {
  std::vector<std::byte> bytes(word.most_encoded());
  bytes.resize(word.encode(bytes));
  return bytes;
}

void refuses(std::span<const std::byte> bytes) {
  Word word;
  try {
    word.decode(bytes);
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kProtocol);
  }
}

TEST(GradientWord, MergesInAnyOrderAndAnyNumberOfTimes) {
  sim::Random random(1);
  for (std::size_t tensors : {0, 1, 63, 64, 65, 161}) {
    const Word one = random_word(tensors, random), two = random_word(tensors, random),
               three = random_word(tensors, random);
    EXPECT_EQ(merged(one, one), one);
    EXPECT_EQ(merged(one, two), merged(two, one));
    EXPECT_EQ(merged(merged(one, two), three), merged(one, merged(two, three)));
    EXPECT_EQ(merged(merged(one, two), one), merged(one, two));
    Word neutral;
    neutral.reset_to_neutral(tensors);
    EXPECT_EQ(merged(neutral, one), one);
  }
}

TEST(GradientWord, MergesEachKindOfFieldByItsOperation) {
  Word one, two;
  one.reset_to_empty(70);
  two.reset_to_empty(70);
  one.set_ready(3), two.set_ready(3), one.set_ready(69), two.set_ready(5);
  one.set_all(Word::kAllFlushed), one.set_all(Word::kAllJoined), two.set_all(Word::kAllJoined);
  one.set_any(Word::kBreak);
  one.set_number(Word::kLaunched, 7), two.set_number(Word::kLaunched, 9);
  one.set_number(Word::kLaunchedLeast, Word::complement(7)), two.set_number(Word::kLaunchedLeast, Word::complement(9));
  one.merge(two);
  EXPECT_TRUE(one.ready(3));
  EXPECT_FALSE(one.ready(5) || one.ready(69));
  EXPECT_FALSE(one.all(Word::kAllFlushed));
  EXPECT_TRUE(one.all(Word::kAllJoined));
  EXPECT_TRUE(one.any(Word::kBreak));
  EXPECT_EQ(one.number(Word::kLaunched), 9U);
  EXPECT_EQ(Word::minimum_of(one.number(Word::kLaunchedLeast)), 7U);
}

TEST(GradientWord, RefusesToMergeWordsOfOtherLengths) {
  Word one, two;
  one.reset_to_empty(8);
  two.reset_to_empty(9);
  EXPECT_THROW(one.merge(two), Error);
}

TEST(GradientWord, DecodesWhatItEncoded) {
  sim::Random random(2);
  Word decoded;
  for (int round = 0; round < 300; ++round) {
    const Word word = random_word(random.below(200), random);
    decoded.decode(encoded(word));
    EXPECT_EQ(decoded, word);
  }
}

TEST(GradientWord, IsOneSmallMessageForAUsualModel) {
  Word word;
  word.reset_to_empty(161);
  word.set_number(Word::kLog, 0xffffffff);
  word.set_number(Word::kLogComplement, 0xffffffff);
  word.set_number(Word::kAwaited, 128);
  EXPECT_LE(encoded(word).size(), 40U);
}

TEST(GradientWord, RefusesEveryCutAndEveryOverhang) {
  sim::Random random(3);
  for (int round = 0; round < 30; ++round) {
    std::vector<std::byte> bytes = encoded(random_word(1 + random.below(200), random));
    for (std::size_t length = 0; length < bytes.size(); ++length) refuses(std::span(bytes).first(length));
    bytes.push_back(std::byte{0});
    refuses(bytes);
  }
}

TEST(GradientWord, ReadsNoByteThatIsNotThere) {
  sim::Random random(4);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes = encoded(random_word(random.below(200), random));
    for (std::uint64_t change = 1 + random.below(3); change > 0; --change)
      bytes[random.below(bytes.size())] = static_cast<std::byte>(random.next());
    Word word;
    try {
      word.decode(bytes);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kProtocol);
      continue;
    }
    EXPECT_EQ(encoded(word), bytes) << "one word has one encoding";
  }
}

TEST(GradientWord, RefusesACountOfTensorsThatOverflows) {
  std::vector<std::byte> bytes(3, std::byte{0});
  for (int byte = 0; byte < 9; ++byte) bytes.push_back(std::byte{0xff});
  bytes.push_back(std::byte{1});
  refuses(bytes);
}

}  // namespace
}  // namespace aiacc::gradient
