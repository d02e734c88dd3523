// Descriptors that travel over a local stream (SCM_RIGHTS): how a rank gets the host's segment. Only for real streams;
// simulated ones throw kUnsupported.
//
// A descriptor rides with the first byte it was sent with: whoever has read that byte may take it.
#pragma once

#include <span>

#include "base/fd.h"
#include "base/io/net.h"

namespace aiacc::io {

// From now on descriptors that arrive on `stream` are kept until taken (at most four; more is kProtocol). Before, the
// kernel drops them: nobody can fill our table unasked.
void accept_descriptors(Stream& stream);

// The oldest that arrived and was not taken; none: an empty Fd.
Fd take_descriptor(Stream& stream);

// Sends `descriptor` (which stays the caller's) with the first of `bytes`; returns how many of them were sent, at least 1.
// The rest is written as usual.
Task<std::size_t> send_descriptor(Stream& stream, std::span<const std::byte> bytes, int descriptor, Stop& stop);

}  // namespace aiacc::io
