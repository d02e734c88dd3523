// Version: a part's bytes after some push, and the answer that brings them to whoever reads all of the part: the answer's head is in
// front of them, so that all answers of a version are sent from its memory, and none of them copies it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "base/error.h"
#include "transports/service/service.h"

namespace aiacc::kv {

struct AnswerHead {
  std::int32_t code = 0;
  std::int32_t peer = kNoPeer;
  std::uint32_t text_bytes = 0;
  std::uint32_t together = 0;
};
static_assert(sizeof(AnswerHead) == 16);

class Version {
 public:
  Version(std::size_t size, ServiceMemory& memory) : answer_(sizeof(AnswerHead) + size, memory) {
    const AnswerHead head;
    std::memcpy(answer_.data(), &head, sizeof head);
  }
  Version(std::span<const std::byte> bytes, ServiceMemory& memory) : Version(bytes.size(), memory) {
    if (!bytes.empty()) std::memcpy(data(), bytes.data(), bytes.size());
  }
  std::byte* data() const noexcept { return answer_.data() + sizeof(AnswerHead); }
  std::size_t size() const noexcept { return answer_.size() - sizeof(AnswerHead); }
  std::span<std::byte> span() const noexcept { return answer_.span().subspan(sizeof(AnswerHead)); }
  std::span<std::byte> answer() const noexcept { return answer_.span(); }

 private:
  ServiceBytes answer_;
};

// Answers that are being sent share it; a change makes another version if any do.
using Snapshot = std::shared_ptr<Version>;

}  // namespace aiacc::kv
