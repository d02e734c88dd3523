#include "groupcomm/gradient/launch_memory.h"

#include <algorithm>
#include <new>

#include "groupcomm/gradient/slots.h"

namespace aiacc::gradient {

LaunchMemory::~LaunchMemory() {
  for (Piece& piece : unused_) free(piece);
}

void LaunchMemory::free(Piece& piece) noexcept {
  if (domain_ != nullptr) {
    domain_->free(piece.range);
  } else {
    ::operator delete(piece.data, std::align_val_t(Slots::kAlignment));
  }
}

LaunchMemory::Piece LaunchMemory::take(std::size_t bytes) {
  auto best = unused_.end();
  for (auto one = unused_.begin(); one != unused_.end(); ++one) {
    if (one->bytes >= bytes && (best == unused_.end() || one->bytes < best->bytes)) best = one;
  }
  if (best != unused_.end()) {
    const Piece found = *best;
    unused_.erase(best);
    ++taken_;
    return found;
  }
  Piece piece;
  piece.bytes = std::max<std::size_t>(Slots::padded(bytes), 4096);
  unused_.reserve(unused_.size() + taken_ + 1);
  for (std::size_t freed = 0; freed < piece.bytes && !unused_.empty(); unused_.pop_back()) {
    freed += unused_.back().bytes;
    free(unused_.back());
  }
  if (domain_ != nullptr) {
    piece.range = domain_->allocate(piece.bytes);
    piece.data = domain_->view(domain_->rank(), piece.range);
    ++taken_;
    return piece;
  }
  try {
    piece.data = static_cast<std::byte*>(::operator new(piece.bytes, std::align_val_t(Slots::kAlignment)));
  } catch (const std::bad_alloc&) {
    throw Error(Code::kOutOfMemory, "there is no memory for what a gradient engine reduces");
  }
  ++taken_;
  return piece;
}

void LaunchMemory::give(Piece piece) noexcept {
  --taken_;
  unused_.push_back(piece);
}

}  // namespace aiacc::gradient
