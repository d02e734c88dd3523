// TcpPortFactory: opens TcpPort. Its address is the port at which it listens from its construction on.
#pragma once

#include <memory>
#include <vector>

#include "base/io/clock.h"
#include "base/io/net.h"
#include "transports/port_factory.h"
#include "transports/tcp/tcp_port.h"

namespace aiacc {

class TcpPortFactory final : public PortFactory {
 public:
  // All outlive the port, but for the listener, which becomes the port's. `streams` and `marks`: as in TcpPort::Settings.
  TcpPortFactory(Loop& loop, io::Net& net, io::Entropy& entropy, std::unique_ptr<io::Listener> listener,
                 io::StreamRange streams = {}, const TcpPort::Marks& marks = {})
      : loop_(loop), net_(net), entropy_(entropy), listener_(std::move(listener)), streams_(streams), marks_(marks) {}

  std::string_view transport() const noexcept override { return wire::kTcp; }
  std::vector<std::uint8_t> address() const override;
  std::unique_ptr<MessagePort> open(PortWorld world) override;

 private:
  Loop& loop_;
  io::Net& net_;
  io::Entropy& entropy_;
  std::unique_ptr<io::Listener> listener_;
  io::StreamRange streams_;
  TcpPort::Marks marks_;
};

}  // namespace aiacc
