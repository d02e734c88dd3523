// LineAssembler: cuts what one rank writes to one stream into pieces that may be mixed with other ranks' pieces.
//
// A piece holds whole lines; each line begins with the tag, put there at the source. A line without an end becomes a piece
// of its own when it has been idle for kIdleFlush, at the end of the stream, or at kLineLimit; what follows of that line is
// a continuation and is not tagged again. Bytes are never changed, and none is invented: without a tag the pieces of a
// stream, one after the other, are exactly what the rank wrote.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/time.h"

namespace aiacc::launcher {

inline constexpr std::size_t kLineLimit = 64 * 1024;
inline constexpr Duration kIdleFlush = std::chrono::milliseconds(150);

// The tag stands in front of each line that begins in the piece.
struct Piece {
  std::string bytes;
  bool continues = false;  // begins inside a line
  bool ends_line = true;   // ends with a newline
};

class LineAssembler {
 public:
  explicit LineAssembler(std::string tag) : tag_(std::move(tag)) {}

  // Takes what was read. There is a piece to send afterwards if has_piece().
  void add(std::string_view bytes);
  bool has_piece() const noexcept { return !ready_.empty(); }
  Piece take_piece();

  // Bytes of a line that has not ended and was not sent yet.
  std::size_t pending() const noexcept { return partial_.size(); }
  // Turns them into a piece.
  void flush();

 private:
  void append(std::string_view part, bool ends_line);

  std::string tag_;
  std::string ready_;    // tagged
  std::string partial_;  // not tagged yet
  bool ready_continues_ = false;
  bool in_line_ = false;  // the last byte made ready was not a newline
};

// A stream of pieces from many ranks into one descriptor: keeps lines of different ranks apart. With tags, a line that was
// left open is closed when another rank writes, and its continuation gets its tag again. Without tags nothing is added.
class PieceJoiner {
 public:
  explicit PieceJoiner(bool tagged) : tagged_(tagged) {}
  // What must be written in front of the piece of `rank` whose tag is `tag`; call joined() with the piece afterwards.
  std::string before(int rank, const Piece& piece, std::string_view tag) const;
  void joined(int rank, const Piece& piece);
  // A line of the launcher itself comes: ends an open line first, so that it stands alone.
  std::string before_own_line();

 private:
  bool tagged_;
  int open_rank_ = -1;  // whose line is open
};

}  // namespace aiacc::launcher
