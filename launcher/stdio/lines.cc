#include "launcher/stdio/lines.h"

#include <utility>

namespace aiacc::launcher {

void LineAssembler::append(std::string_view part, bool ends_line) {
  if (part.empty()) return;
  if (ready_.empty()) ready_continues_ = in_line_;
  if (!in_line_) ready_ += tag_;
  ready_ += part;
  in_line_ = !ends_line;
}

void LineAssembler::add(std::string_view bytes) {
  if (tag_.empty()) {
    const std::size_t last = bytes.rfind('\n');
    if (last != std::string_view::npos) {
      append(std::exchange(partial_, {}), false);
      append(bytes.substr(0, last + 1), true);
      bytes.remove_prefix(last + 1);
    }
  } else {
    for (std::size_t end = bytes.find('\n'); end != std::string_view::npos; end = bytes.find('\n')) {
      append(std::exchange(partial_, {}), false);
      append(bytes.substr(0, end + 1), true);
      bytes.remove_prefix(end + 1);
    }
  }
  partial_ += bytes;
  if (partial_.size() >= kLineLimit) flush();
}

void LineAssembler::flush() { append(std::exchange(partial_, {}), false); }

Piece LineAssembler::take_piece() {
  return {std::exchange(ready_, {}), std::exchange(ready_continues_, false), !in_line_};
}

std::string PieceJoiner::before(int rank, const Piece& piece, std::string_view tag) const {
  if (!tagged_) return {};
  const bool interrupts = open_rank_ >= 0 && (open_rank_ != rank || !piece.continues);
  std::string text;
  if (interrupts) text = "\n";
  if (piece.continues && open_rank_ != rank) text += tag;
  return text;
}

void PieceJoiner::joined(int rank, const Piece& piece) { open_rank_ = piece.ends_line ? -1 : rank; }

std::string PieceJoiner::before_own_line() { return std::exchange(open_rank_, -1) >= 0 ? "\n" : ""; }

}  // namespace aiacc::launcher
