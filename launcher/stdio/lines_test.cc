#include "launcher/stdio/lines.h"

#include <gtest/gtest.h>

namespace aiacc::launcher {
namespace {

std::string drain(LineAssembler& lines) { return lines.has_piece() ? lines.take_piece().bytes : std::string(); }

TEST(LineAssembler, HoldsAPartialLineUntilItEnds) {
  LineAssembler lines("");
  lines.add("one\ntw");
  EXPECT_EQ(drain(lines), "one\n");
  EXPECT_EQ(lines.pending(), 2u);
  EXPECT_FALSE(lines.has_piece());
  lines.add("o\n");
  Piece piece = lines.take_piece();
  EXPECT_EQ(piece.bytes, "two\n");
  EXPECT_FALSE(piece.continues);
  EXPECT_TRUE(piece.ends_line);
}

TEST(LineAssembler, TagsEachLineOnceAlsoAcrossAFlush) {
  LineAssembler lines("[3] ");
  lines.add("a\n\nb");
  EXPECT_EQ(drain(lines), "[3] a\n[3] \n");
  lines.flush();
  Piece first = lines.take_piece();
  EXPECT_EQ(first.bytes, "[3] b");
  EXPECT_FALSE(first.ends_line);
  lines.add("c\nd\n");
  Piece rest = lines.take_piece();
  EXPECT_TRUE(rest.continues);
  EXPECT_EQ(rest.bytes, "c\n[3] d\n");
}

TEST(LineAssembler, UntaggedIsByteExactWhateverTheCuts) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += i % 97 == 0 ? '\n' : i % 13 == 0 ? '\0' : static_cast<char>(i);
  text += std::string(3 * kLineLimit, 'x') + "end without newline";
  for (std::size_t cut : {1u, 7u, 4096u, 65536u}) {
    LineAssembler lines("");
    std::string got;
    for (std::size_t at = 0; at < text.size(); at += cut) {
      lines.add(std::string_view(text).substr(at, cut));
      got += drain(lines);
      EXPECT_LT(lines.pending(), kLineLimit);
    }
    lines.flush();
    got += drain(lines);
    EXPECT_TRUE(got == text) << "cut at " << cut;
  }
}

TEST(LineAssembler, LongLineIsCutAndTaggedOnce) {
  LineAssembler lines("[0] ");
  std::string got;
  for (int i = 0; i < 1024; ++i) {
    lines.add(std::string(1024, 'a'));
    got += drain(lines);
  }
  lines.add("\n");
  got += drain(lines);
  EXPECT_EQ(got, "[0] " + std::string(1024 * 1024, 'a') + "\n");
}

std::string join(PieceJoiner& joiner, int rank, const Piece& piece) {
  std::string text = joiner.before(rank, piece, "[" + std::to_string(rank) + "] ") + piece.bytes;
  joiner.joined(rank, piece);
  return text;
}

TEST(PieceJoiner, ClosesAnOpenLineWhenAnotherRankWrites) {
  PieceJoiner tagged(true);
  std::string text = join(tagged, 0, {"[0] pass", false, false});
  text += join(tagged, 1, {"[1] hi\n", false, true});
  text += join(tagged, 0, {"word\n", true, true});
  EXPECT_EQ(text, "[0] pass\n[1] hi\n[0] word\n");
}

TEST(PieceJoiner, UninterruptedContinuationIsNotTaggedAgain) {
  PieceJoiner tagged(true);
  std::string text = join(tagged, 0, {"[0] pass", false, false});
  text += join(tagged, 0, {"word\n", true, true});
  EXPECT_EQ(text, "[0] password\n");
  EXPECT_EQ(tagged.before_own_line(), "");
}

TEST(PieceJoiner, UntaggedAddsNothingButTheLaunchersOwnLineStandsAlone) {
  PieceJoiner plain(false);
  std::string text = join(plain, 0, {"a", false, false});
  text += join(plain, 1, {"b\n", false, true});
  EXPECT_EQ(text, "ab\n");
  join(plain, 0, {"x", false, false});
  EXPECT_EQ(plain.before_own_line(), "\n");
  EXPECT_EQ(plain.before_own_line(), "");
}

}  // namespace
}  // namespace aiacc::launcher
