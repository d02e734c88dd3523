// What every MessagePort must do. The tests are message_conformance.cc; a transport's test includes this, describes how to make
// a small world of its ports, and instantiates the suite:
//
//   struct MyPorts { MessagePort& port(int rank); bool run_until(std::function<bool()> done); void lose(int rank); };
//   INSTANTIATE_TEST_SUITE_P(My, MessageConformance, ::testing::Values(&make<MyPorts>));
//
// kRanks ports, each on its own loop. run_until() drives all loops until done() and gives up after 60 s (10 s of virtual
// time in the simulator). lose(rank) ends that rank's process without an orderly shutdown.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "transports/message.h"

namespace aiacc::message_conformance {

inline constexpr int kRanks = 3;
using Action = MessageReceiver::Placement::Action;

// Records every callback, and places payloads into memory of its own unless `decide` says otherwise.
class Recorder final : public MessageReceiver {
 public:
  struct Message {
    int from;
    MessageHeader header;
    std::vector<std::byte> bytes;
    bool placed = false;
  };

  Placement on_header(int from, const MessageHeader& header) noexcept override {
    asked.push_back(header.step);
    const Action action = decide ? decide(from, header) : Action::kInto;
    if (action != Action::kInto) return {action, {}};
    Message& message = messages.emplace_back(Message{from, header, std::vector<std::byte>(header.length), false});
    return {action, Buffer{message.bytes.data(), message.bytes.size()}};
  }
  void on_placed(int from, const MessageHeader& header) noexcept override {
    for (Message& message : messages) {
      if (message.from == from && message.header.step == header.step && message.header.traffic == header.traffic) {
        message.placed = true;
      }
    }
    ++placed;
  }
  void on_peer_lost(int rank, std::exception_ptr error) noexcept override { lost.emplace_back(rank, as_error(error)); }
  void on_path_broken(int) noexcept override { ++broken; }

  std::function<Action(int, const MessageHeader&)> decide;
  std::vector<std::uint32_t> asked;
  std::deque<Message> messages;  // stable addresses: places point into them
  std::size_t placed = 0;
  std::vector<std::pair<int, Error>> lost;
  int broken = 0;
};

class Completion final : public SendCompletion {
 public:
  void sent(std::exception_ptr failure) noexcept override {
    ++told;
    error = std::move(failure);
  }
  int told = 0;
  std::exception_ptr error;
};

inline MessageHeader header_of(std::uint32_t tag, std::size_t length, TrafficClass traffic = TrafficClass::kBulk) {
  MessageHeader header;
  header.step = tag;
  header.length = header.total = length;
  header.traffic = traffic;
  return header;
}

inline std::vector<std::byte> pattern(std::size_t length, unsigned salt) {
  std::vector<std::byte> bytes(length);
  for (std::size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>((i * 131 + salt * 29 + (i >> 8)) & 0xff);
  return bytes;
}

class PortsUnderTest {
 public:
  virtual ~PortsUnderTest() = default;
  virtual MessagePort& port(int rank) = 0;
  virtual bool run_until(const std::function<bool()>& done) = 0;
  virtual void lose(int rank) = 0;
};
// Null where there is no such transport; the tests are skipped then.
using MakePorts = std::unique_ptr<PortsUnderTest> (*)();

template <class Ports>
std::unique_ptr<PortsUnderTest> make() {
  class Made final : public PortsUnderTest {
   public:
    MessagePort& port(int rank) override { return ports_.port(rank); }
    bool run_until(const std::function<bool()>& done) override { return ports_.run_until(done); }
    void lose(int rank) override { ports_.lose(rank); }

   private:
    Ports ports_;
  };
  return std::make_unique<Made>();
}

class MessageConformance : public ::testing::TestWithParam<MakePorts> {
 public:
  MessageConformance() {
    for (int rank = 0; ports != nullptr && rank < kRanks; ++rank) ports->port(rank).set_receiver(receiver[rank]);
  }
  void SetUp() override {
    if (ports == nullptr) GTEST_SKIP() << "this transport is not available here";
  }
  ~MessageConformance() override {
    for (int rank = 0; ports != nullptr && rank < kRanks; ++rank) ports->port(rank).close();
  }

  void post(int from, int to, const MessageHeader& header, std::vector<std::byte>& bytes, Completion& told) {
    const Buffer piece{bytes.data(), bytes.size()};
    ports->port(from).post(to, header, std::span(&piece, 1), told);
  }

  Recorder receiver[kRanks];
  Completion completion;
  std::unique_ptr<PortsUnderTest> ports = GetParam()();
};

}  // namespace aiacc::message_conformance
