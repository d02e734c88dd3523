#include "launcher/agent/segment.h"

#include <fcntl.h>

#include <span>

#include "base/io/limits.h"
#include "transports/host/segment.h"

namespace aiacc::launcher {

SharedSegment create_segment(int ranks, std::uint64_t slice_bytes, io::Entropy& entropy) {
  SharedSegment segment;
  entropy.fill(std::as_writable_bytes(std::span(&segment.nonce, 1)));
  const HostSegment made = HostSegment::create(ranks, slice_bytes, segment.nonce);
  segment.descriptor = std::make_shared<const Fd>(io::checked_descriptor(
      ::fcntl(made.descriptor(), F_DUPFD_CLOEXEC, 3), "cannot keep the shared segment of this host"));
  return segment;
}

}  // namespace aiacc::launcher
