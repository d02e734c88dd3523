// RealNet: Net over the kernel's sockets: TCP over IPv4 and IPv6, and local sockets in the abstract name space (no
// file, removed with their owner; SO_PEERCRED gives the peer's user and process). adopt() makes a Stream of any other
// descriptor.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "base/io/congestion.h"
#include "base/io/fd_stream.h"
#include "base/io/net.h"
#include "base/io/real_loop.h"
#include "base/io/stream_range.h"
#include "base/io/traffic_marks.h"

namespace aiacc::io {

// How long a host may be silent before its TCP connections break.
inline constexpr Duration kSilenceLimit = std::chrono::seconds(30);

// How TCP connections behave.
struct TcpSettings {
  Duration silence_limit = kSilenceLimit;
  Congestion congestion{};
  StreamRange streams{};                // how many connections two processes have for their messages
  std::array<TrafficMarks, 4> marks{};  // by traffic class: control, latency, bulk, background
};

class RealNet final : public Net {
 public:
  explicit RealNet(RealLoop& loop, TcpSettings settings = {}) : loop_(loop), settings_(std::move(settings)) {}

  std::unique_ptr<Listener> listen(const Address& address) override;
  Task<std::unique_ptr<Stream>> connect(Address address, Stop& stop) override;

 private:
  RealLoop& loop_;
  TcpSettings settings_;
};

// A stream over a socket, a pipe's end, a terminal or a file that the caller owns; it becomes non-blocking.
std::unique_ptr<Stream> adopt(RealLoop& loop, Fd descriptor, std::string description);

// A stream over an inherited descriptor (0, 1, 2 …) whose open file description other processes may share: its flags
// are not changed. Pipes and terminals are reopened for this process if the kernel permits it; otherwise each transfer
// is at most a page and calls poll(2) first, and may still block if another process writes to the same pipe meanwhile.
// The caller keeps the descriptor, which stays open.
std::unique_ptr<Stream> adopt_inherited(RealLoop& loop, int descriptor, std::string description);

// Two connected local streams.
std::pair<std::unique_ptr<Stream>, std::unique_ptr<Stream>> stream_pair(RealLoop& loop, const std::string& description);

// The ends of a new pipe or socketpair, close-on-exec, with numbers of 4 or more, so that they never take a stdio
// number.
struct FdPair {
  Fd first;   // of a pipe: the read end
  Fd second;  // of a pipe: the write end
};
FdPair make_pipe();
FdPair make_socketpair();

}  // namespace aiacc::io
