#include "groupcomm/gradient/slots.h"

#include <algorithm>
#include <utility>

namespace aiacc::gradient {

void Slots::clear() noexcept {
  for (const Chunk& chunk : chunks_) {
    if (domain_ != nullptr) domain_->free(chunk.range);
  }
  chunks_.clear();
  kinds_.clear();
}

void Slots::reserve(std::uint64_t kind, std::size_t bytes) {
  OfKind& of = kinds_[kind];
  if (bytes == 0 || of.bytes - of.taken >= bytes) return;
  Chunk chunk;
  chunk.bytes = padded(std::max(bytes, kLeastChunk));
  chunks_.reserve(chunks_.size() + 1);
  if (domain_ != nullptr) {
    chunk.range = domain_->allocate(chunk.bytes);
    chunk.data = domain_->view(domain_->rank(), chunk.range);
  } else {
    chunk.pages = Mapping::make(chunk.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (!chunk.pages) throw Error(Code::kOutOfMemory, "there is no memory for the tensors of a gradient engine");
    chunk.data = chunk.pages.data();
  }
  of.data = chunk.data;
  of.bytes = chunk.bytes;
  chunks_.push_back(std::move(chunk));
  ++of.chunks;
  of.taken = 0;
}

Slots::Slot Slots::take(std::uint64_t kind, std::size_t bytes) noexcept {
  OfKind& of = kinds_[kind];
  if (bytes == 0) return {};
  const Slot slot{of.data + of.taken, of.chunks << 40 | of.taken};
  of.taken += padded(bytes);
  return slot;
}

}  // namespace aiacc::gradient
