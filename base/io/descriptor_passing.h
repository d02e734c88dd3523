// Passes descriptors over a local stream (SCM_RIGHTS): a rank gets the host's segment in this way. Only for real
// streams; simulated ones throw kUnsupported.
//
// A descriptor is attached to the first byte that it was sent with; it can be taken after that byte was read.
#pragma once

#include <span>

#include "base/fd.h"
#include "base/io/net.h"

namespace aiacc::io {

// From now on descriptors that arrive on `stream` are kept until taken (at most four; more is kProtocol). Before this
// call the kernel drops them, so a peer cannot fill this process's descriptor table.
void accept_descriptors(Stream& stream);

// The oldest descriptor that arrived and was not taken; an empty Fd if there is none.
Fd take_descriptor(Stream& stream);

// Sends `descriptor` (which the caller keeps) with the first of `bytes`; returns how many of them were sent, at least
// 1. The caller writes the rest as usual.
Task<std::size_t> send_descriptor(Stream& stream, std::span<const std::byte> bytes, int descriptor, Stop& stop);

}  // namespace aiacc::io
