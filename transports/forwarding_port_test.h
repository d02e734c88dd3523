// ForwardingPort: a port that hands every call to another one. Tests derive from it what they want to see or change. For tests
// only.
#pragma once

#include <exception>
#include <memory>
#include <span>
#include <utility>

#include "transports/message.h"

namespace aiacc {

class ForwardingPort : public MessagePort {
 public:
  explicit ForwardingPort(std::unique_ptr<MessagePort> port) : port_(std::move(port)) {}

  void set_receiver(MessageReceiver& receiver) noexcept override { port_->set_receiver(receiver); }
  void post(int to, const MessageHeader& header, std::span<const Buffer> pieces,
            SendCompletion& completion) noexcept override {
    port_->post(to, header, pieces, completion);
  }
  std::size_t chunk_bytes() const noexcept override { return port_->chunk_bytes(); }
  int chunks_in_flight(int to) const noexcept override { return port_->chunks_in_flight(to); }
  void note_latency() noexcept override { port_->note_latency(); }
  void release(int from) noexcept override { port_->release(from); }
  void withdraw(SendCompletion& completion) noexcept override { port_->withdraw(completion); }
  void revoke(int from, const MessageHeader& header) noexcept override { port_->revoke(from, header); }
  void lose(int rank, std::exception_ptr why) noexcept override { port_->lose(rank, why); }
  Task<void> leave(Duration limit, Stop& stop) override { return port_->leave(limit, stop); }
  void close() noexcept override { port_->close(); }

 private:
  std::unique_ptr<MessagePort> port_;
};

}  // namespace aiacc
