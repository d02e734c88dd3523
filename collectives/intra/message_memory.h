// MessageMemory: what a member's long messages take from its slice. What was received is kept for the next ones (SpareRanges).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/error.h"
#include "collectives/intra/spare_ranges.h"
#include "transports/host/host_domain.h"

namespace aiacc {

class MessageMemory {
 public:
  static constexpr std::uint64_t kCachedBytes = 4 << 20;

  MessageMemory(HostDomain& domain, std::uint64_t most_spare_bytes) noexcept
      : domain_(domain), most_bytes_(most_spare_bytes), spare_(most_spare_bytes) {}
  ~MessageMemory() { drop_spare(); }
  MessageMemory(const MessageMemory&) = delete;
  MessageMemory& operator=(const MessageMemory&) = delete;

  // Whether so many bytes are within what is kept when it is received. What goes beyond takes new pages each time.
  bool has_place(std::size_t bytes) const noexcept { return held_ + spare_.size_for(bytes) <= most_bytes_; }
  // Whether so many bytes are within what the caches of both ends keep.
  bool has_cached_place(std::size_t bytes) const noexcept {
    return held_ + spare_.size_for(bytes) <= std::min(kCachedBytes, most_bytes_);
  }
  // For tests: it has none from now on.
  void keep_no_place() noexcept { most_bytes_ = 0; }

  // Throws kOutOfMemory.
  HostRange acquire(std::size_t bytes) {
    const HostRange range = find(bytes);
    held_ += range.bytes;
    return range;
  }
  void release(HostRange range) noexcept {
    held_ -= range.bytes;
    spare_.keep(range, [this](HostRange dropped) { domain_.free(dropped); });
  }
  std::byte* view(HostRange range) { return domain_.view(domain_.rank(), range); }

 private:
  HostRange find(std::size_t bytes) {
    const std::uint64_t wanted = spare_.size_for(bytes);
    if (const std::optional<HostRange> spare = spare_.take(wanted)) return *spare;
    HostRange range;
    try {
      range = domain_.allocate(wanted);
    } catch (const Error& error) {
      if (error.code() != Code::kOutOfMemory || spare_.bytes() == 0) throw;
      drop_spare();
      range = domain_.allocate(wanted);
    }
    range.bytes = wanted;
    return range;
  }
  void drop_spare() noexcept {
    spare_.drop_all([this](HostRange dropped) { domain_.free(dropped); });
  }

  HostDomain& domain_;
  std::uint64_t most_bytes_;
  std::uint64_t held_ = 0;  // of messages that have not been received
  SpareRanges spare_;
};

}  // namespace aiacc
