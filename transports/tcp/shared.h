// What the parts of a TcpPort have in common.
#pragma once

#include <exception>
#include <string>

#include "transports/tcp/tcp_port.h"

namespace aiacc::tcp {

// Something that is told later, because the port tells nobody anything from inside a call.
struct Told {
  enum class What : std::uint8_t { kSent, kRevoked, kRelease, kLost };
  What what;
  int rank = kNoPeer;
  SendCompletion* completion = nullptr;
  std::exception_ptr error;
  MessageHeader header;
};

class Shared {
 public:
  Shared(Loop& its_loop, io::Net& its_net, TcpPort::Settings its_settings)
      : loop(its_loop), net(its_net), settings(std::move(its_settings)), links_changed(its_loop) {}
  virtual void tell_later(Told told) noexcept = 0;

  int size() const noexcept { return static_cast<int>(settings.peers.size()); }
  const TcpPort::Peer& peer(int rank) const noexcept { return settings.peers[static_cast<std::size_t>(rank)]; }
  const std::string& name(int rank) const noexcept { return peer(rank).name; }

  Loop& loop;
  io::Net& net;
  const TcpPort::Settings settings;
  MessageReceiver* receiver = nullptr;
  bool closed = false;
  bool encrypts = false;  // what follows a handshake
  std::uint64_t refused = 0;
  Event links_changed;  // for leave(): set when a link has nothing more to say

 protected:
  ~Shared() = default;
};

}  // namespace aiacc::tcp
