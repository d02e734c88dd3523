// Link: what a FailoverPort has sent to one rank and received from it over the first network, and the way to the second one.
//
//   first ── its path broke, here or at the peer ──▶ leaving ── the first network has given everything back ──▶ switching
//                                                                    │ the peer's receipts have come
//   (any) ── lost by both networks, or by the one in use ──▶ lost     ▼
//                                                                  second
//
// While it leaves and switches, new messages are kept, too. Then all that the peer has not received goes over the second network in
// the order of each class. Both ends send their receipts after the first network has given back everything, so they are final.
#pragma once

#include <array>
#include <exception>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/wire/codec.h"
#include "base/wire/path_messages.h"
#include "transports/failover/receipts.h"
#include "transports/message.h"

namespace aiacc::failover {

class Link;

// A message of this rank's, until the peer has it or nobody waits for it any more.
struct Record final : SendCompletion, SendCompletion::Message {
  enum class At : std::uint8_t { kNowhere, kFirst, kSecond };
  void sent(std::exception_ptr failure) noexcept override;

  Link* link = nullptr;
  std::list<Record>::iterator self{};
  MessageHeader header;
  std::uint64_t number = 0;  // in its class
  At at = At::kNowhere;      // the network that may read it now
  bool lent = false;         // the pieces are the poster's
  bool received = false;     // by the peer
  bool withdrawn = false;
  std::vector<std::byte> copy;  // the payload, unless it is lent
  std::vector<Buffer> pieces;
};

// Completion of what a port says itself, which nobody waits for.
struct Said final : SendCompletion {
  explicit Said(wire::Bytes its_bytes) : bytes(std::move(its_bytes)) {}
  void sent(std::exception_ptr) noexcept override { done = true; }
  wire::Bytes bytes;
  bool done = false;
};

// What the links of a port share.
class Shared {
 public:
  enum class What : std::uint8_t { kTold, kRevoked };
  struct Notification {
    What what;
    int rank = -1;
    SendCompletion* completion = nullptr;  // of kTold
    std::exception_ptr error;              // of kTold
    MessageHeader header;                  // of kRevoked
  };
  // Callbacks that are made from the loop.
  virtual void notify_later(Notification notification) noexcept = 0;
  virtual void remark(const std::string& sentence) noexcept = 0;
  virtual void link_changed() noexcept = 0;

  const std::string& name(int of_rank) const noexcept { return names[static_cast<std::size_t>(of_rank)]; }

  MessagePort* first = nullptr;
  MessagePort* second = nullptr;
  std::string first_name, second_name;
  MessageReceiver* receiver = nullptr;
  int rank = -1;
  std::vector<std::string> names;
  bool closed = false;

 protected:
  ~Shared() = default;
};

class Link {
 public:
  Link(Shared& shared, int rank) : shared_(shared), rank_(rank) {}

  void post(const MessageHeader& header, std::span<const Buffer> pieces, SendCompletion& completion, bool now) noexcept;
  void withdraw(Record& record) noexcept;
  void revoke(const MessageHeader& header) noexcept;
  void release() noexcept;
  void lose(std::exception_ptr why) noexcept;
  void sent(Record& record, std::exception_ptr error) noexcept;

  // Of the first network.
  MessageReceiver::Placement first_header(const MessageHeader& header) noexcept;
  void first_placed(const MessageHeader& header) noexcept;
  void first_broken(const std::string& reason) noexcept;
  void first_lost(std::exception_ptr error) noexcept;
  // Of the second one.
  MessageReceiver::Placement second_header(const MessageHeader& header) noexcept;
  void second_placed(const MessageHeader& header) noexcept;
  void second_broken() noexcept;
  void second_lost(std::exception_ptr error) noexcept;

  bool uses_first() const noexcept { return state_ == State::kFirst; }
  bool is_switching() const noexcept { return state_ == State::kLeaving || state_ == State::kSwitching; }
  void forget() noexcept;  // of close(): no callback follows

 private:
  enum class State : std::uint8_t { kFirst, kLeaving, kSwitching, kSecond, kLost };

  // A message that was offered and has not come yet.
  struct Arriving {
    MessageHeader header;
    std::uint64_t number = 0;
    bool held = false;     // it has no place yet
    bool revoked = false;  // the receiver wants its place back, or has it
  };
  struct Class {
    std::uint64_t posted = 0;
    std::list<Record> records;  // by number
    std::uint64_t offered = 0;
    ReceivedNumbers received;
  };

  Class& class_of(TrafficClass traffic) noexcept { return classes_[static_cast<std::size_t>(traffic)]; }
  std::list<Arriving>::iterator find_arriving(const MessageHeader& header) noexcept;
  std::list<Arriving>::iterator find_numbered(const MessageHeader& header) noexcept;
  std::uint64_t next_number(const MessageHeader& header) noexcept;
  void came(const Arriving& one) noexcept;
  void say(MessagePort& port, const std::string& over) noexcept;
  MessageReceiver::Placement place_for_receipts(const MessageHeader& header, bool replays) noexcept;
  std::string ends() const;
  void receipts_came(const MessageHeader& header) noexcept;
  void require_sense(const wire::Receipts& receipts) const;
  void note(const wire::Receipts& receipts) noexcept;
  void erase(Record& record) noexcept;
  void go_on() noexcept;   // over the second network, once both ends are ready
  void finish() noexcept;  // the loss, once both networks have given everything back

  Shared& shared_;
  const int rank_;
  State state_ = State::kFirst;
  std::array<Class, kTrafficClasses> classes_;
  std::list<Arriving> arriving_;    // over the first network
  std::size_t unacknowledged_ = 0;  // messages that have come since the last receipts
  std::size_t unacknowledged_bytes_ = 0;
  std::list<Said> said_;
  std::uint64_t said_count_ = 0;
  std::map<std::uint64_t, wire::Bytes> coming_;  // receipts of the peer, by number
  std::optional<wire::Receipts> theirs_;         // the peer's last
  std::string reason_;
  std::exception_ptr why_;  // it is lost, or will be
  bool first_lost_ = false, second_lost_ = false;
};

}  // namespace aiacc::failover
