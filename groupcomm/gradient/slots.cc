#include "groupcomm/gradient/slots.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace aiacc::gradient {
namespace {

constexpr std::size_t kPageBytes = 4096;

}  // namespace

void Slots::clear() noexcept {
  for (const Chunk& chunk : chunks_) {
    if (domain_ != nullptr) {
      domain_->free(chunk.range);
    } else {
      ::operator delete(chunk.data, std::align_val_t(kPageBytes));
    }
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
    try {
      chunk.data = static_cast<std::byte*>(::operator new(chunk.bytes, std::align_val_t(kPageBytes)));
    } catch (const std::bad_alloc&) {
      throw Error(Code::kOutOfMemory, "there is no memory for the tensors of a gradient engine");
    }
    std::memset(chunk.data, 0, chunk.bytes);
  }
  chunks_.push_back(chunk);
  ++of.chunks;
  of.data = chunk.data;
  of.bytes = chunk.bytes;
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
