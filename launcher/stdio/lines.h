// launcher/stdio: forwarding of standard input, output and error between ranks, agent and aiaccrun, and the credit that
// bounds it. Not here: the channel that carries the bytes (launcher/channel).
//
// LineAssembler: cuts what one rank writes to one stream into pieces that may be mixed with other ranks' pieces.
//
// A piece holds whole lines; each line begins with the tag, which the assembler adds. A line without an end becomes a
// piece of its own when it has been idle for kIdleFlush, at the end of the stream, or at kLineLimit; the rest of that
// line is a continuation and is not tagged again. Bytes are never changed: without a tag, the concatenated pieces of a
// stream are exactly what the rank wrote.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/time.h"

namespace aiacc::launcher {

inline constexpr std::size_t kLineLimit = 64 * 1024;
inline constexpr Duration kIdleFlush = std::chrono::milliseconds(150);

// The tag precedes each line that begins in the piece.
struct Piece {
  std::string bytes;
  bool continues = false;  // begins inside a line
  bool ends_line = true;   // ends with a newline
};

class LineAssembler {
 public:
  explicit LineAssembler(std::string tag) : tag_(std::move(tag)) {}

  // Adds bytes that were read. Afterwards there is a piece to send if has_piece().
  void add(std::string_view bytes);
  bool has_piece() const noexcept { return !ready_.empty(); }
  Piece take_piece();

  // The number of unsent bytes of a line that has not ended.
  std::size_t pending() const noexcept { return partial_.size(); }
  // Makes a piece of the pending bytes.
  void flush();

 private:
  void append(std::string_view part, bool ends_line);

  std::string tag_;
  std::string ready_;    // tagged
  std::string partial_;  // not tagged yet
  bool ready_continues_ = false;
  bool in_line_ = false;  // the last byte made ready was not a newline
};

// Writes pieces of many ranks to one descriptor and keeps lines of different ranks apart. With tags, an open line is
// ended when another rank writes, and its continuation gets its tag again. Without tags nothing is added.
class PieceJoiner {
 public:
  explicit PieceJoiner(bool tagged) : tagged_(tagged) {}
  // What to write before the piece of `rank`, whose tag is `tag`; call joined() with the piece afterwards.
  std::string before(int rank, const Piece& piece, std::string_view tag) const;
  void joined(int rank, const Piece& piece);
  // What to write before a line of the launcher itself: the end of an open line.
  std::string before_own_line();

 private:
  bool tagged_;
  int open_rank_ = -1;  // whose line is open
};

}  // namespace aiacc::launcher
