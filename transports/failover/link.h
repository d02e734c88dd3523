// Link: what a FailoverPort has sent to one rank and received from it over the first network, and the ways to the second one and back.
//
//   first ── its path broke, here or at the peer ──▶ leaving ── the first network has given everything back ──▶ switching
//     ▲                                                 ▲                                                           │
//     │ all of the peer's last messages                 │ the path broke                                            │ the peer's
//     │ over the second network have come               │                                                           │ receipts
//   returning ──────────────────────────────────────────┘                                                           ▼ have come
//     ▲  └── the peer has abandoned the trial, or has not begun to return ──▶ second ◀───────────────────────────────┘
//     └───────── a trial of the first network has succeeded ────────────────────┘
//
//   (any) ── lost by both networks, or by the one in use ──▶ lost
//
// While it leaves, switches and returns, new messages are kept. Then all that the peer has not received goes over the second network in
// the order of each class. Both ends send their receipts after the first network has given back everything, so they are final.
//
// The way back (link_return.cc). After the hold-down the lower rank begins a trial: both ends renew the first network with a new epoch,
// and send probes over it, while messages go over the second one. Then each end sends its last message in each class over the second
// network. A rank sends nothing over the first one before all of the other's last messages have come, so no message overtakes another.
// The higher rank begins when the lower one has said that, because its own last messages must have come, too.
//
//     lower rank                      higher rank
//       kAsk  ───────────────────────▶  renews
//       ◀─────────────────────── kReady
//       kProbe ═══ first network ════▶
//       ◀════ first network ═══ kProbe
//   returning: kLast ────────────────▶
//       ◀──────────────────────── kLast  returning
//   first: kDone ────────────────────▶  first
//
// What breaks before a rank returns is told by kAbandon; it has sent and got nothing over the first network then. From then on it is told
// by the receipts, as on the way to the second one.
#pragma once

#include <array>
#include <exception>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/wire/codec.h"
#include "base/wire/path_messages.h"
#include "transports/failover/hold_down.h"
#include "transports/failover/receipts.h"
#include "transports/message.h"

namespace aiacc::failover {

class Link;

// A message of this rank's, until the peer has it or nobody waits for it any more.
struct Record final : SendCompletion, SendCompletion::Message {
  enum class At : std::uint8_t { kNowhere, kFirst, kSecond };
  void sent(std::exception_ptr failure) noexcept override;

  Link* link = nullptr;
  std::list<Record>* in = nullptr;  // the list where it is
  std::list<Record>::iterator self{};
  MessageHeader header;
  std::uint64_t number = 0;  // in its class, of the first network
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
  enum class What : std::uint8_t { kTold, kRevoked, kAsked };
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

  Instant now() const noexcept { return loop->now(); }
  const std::string& name(int of_rank) const noexcept { return names[static_cast<std::size_t>(of_rank)]; }

  Loop* loop = nullptr;
  Duration failback{};  // the first hold-down; zero: this rank asks for no trial
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

enum class Over : std::uint8_t { kFirst, kSecond };  // which network

class Link final : private Timer {
 public:
  Link(Shared& shared, int rank) : shared_(shared), rank_(rank), hold_down_(shared.failback) {}

  void post(const MessageHeader& header, std::span<const Buffer> pieces, SendCompletion& completion, bool now) noexcept;
  void withdraw(Record& record) noexcept;
  void revoke(const MessageHeader& header) noexcept;
  void release() noexcept;
  void lose(std::exception_ptr why) noexcept;
  void sent(Record& record, std::exception_ptr error) noexcept;

  // As MessageReceiver.
  MessageReceiver::Placement on_header(Over over, const MessageHeader& header) noexcept;
  void on_placed(Over over, const MessageHeader& header) noexcept;
  void on_lost(Over over, std::exception_ptr error) noexcept;
  void on_broken(Over over) noexcept;

  void answer() noexcept;       // the peer that has asked for a trial, once the first network is free for one
  void stop_trials() noexcept;  // this rank leaves
  bool uses_first() const noexcept { return state_ == State::kFirst; }
  bool is_switching() const noexcept {
    return state_ == State::kLeaving || state_ == State::kSwitching || state_ == State::kReturning;
  }
  void forget() noexcept;  // of close(): no callback follows

 private:
  enum class State : std::uint8_t { kFirst, kLeaving, kSwitching, kSecond, kReturning, kLost };
  enum class Trial : std::uint8_t { kNone, kAsked, kAnswered, kProbing };  // within kSecond

  // A message that was offered and has not come yet.
  struct Arriving {
    MessageHeader header;
    std::uint64_t number = 0;
    bool held = false;     // it has no place yet
    bool revoked = false;  // the receiver wants its place back, or has it
    bool again = false;  // the first network has given it back, and it comes over the second one unless it is withdrawn
  };
  // A message of the peer's FailoverPort that is on its way.
  struct Coming {
    Over over;
    wire::Bytes bytes;
  };
  struct Class {
    std::uint64_t posted = 0;
    std::list<Record> records;  // by number
    std::uint64_t offered = 0;
    ReceivedNumbers received;
  };

  Class& class_of(TrafficClass traffic) noexcept { return classes_[static_cast<std::size_t>(traffic)]; }
  bool is_lower() const noexcept { return shared_.rank < rank_; }
  MessageReceiver::Placement first_header(const MessageHeader& header) noexcept;
  void first_placed(const MessageHeader& header) noexcept;
  void first_broken(const std::string& reason) noexcept;
  void first_lost(std::exception_ptr error) noexcept;
  MessageReceiver::Placement second_header(const MessageHeader& header) noexcept;
  void second_lost(std::exception_ptr error) noexcept;
  void transmit_first(Record& record, bool now) noexcept;
  std::list<Arriving>::iterator find_arriving(const MessageHeader& header) noexcept;
  std::list<Arriving>::iterator find_numbered(const MessageHeader& header) noexcept;
  std::uint64_t next_number(const MessageHeader& header) noexcept;
  void came(const Arriving& one) noexcept;
  void say_receipts(MessagePort& port, const std::string& over) noexcept;
  void say(wire::Return::Step step, TrafficClass traffic = TrafficClass::kControl) noexcept;
  void say_in_each_class(wire::Return::Step step) noexcept;
  template <wire::Message T>
  void say(MessagePort& port, TrafficClass traffic, const T& message) noexcept;
  MessageReceiver::Placement place_for(Over over, const MessageHeader& header) noexcept;
  std::string ends() const;
  void path_message_came(Over over, const MessageHeader& header) noexcept;
  void receipts_came(Over over, const wire::Receipts& receipts);
  void require_sense(const wire::Receipts& receipts) const;
  void note(const wire::Receipts& receipts) noexcept;
  void erase(Record& record) noexcept;
  void leave_first(const std::string& reason) noexcept;
  void go_on() noexcept;  // over the second network, once both ends are ready
  void use_second() noexcept;
  void finish() noexcept;  // the loss, once both networks have given everything back

  // The way back.
  void expired() noexcept override;
  void await_trial() noexcept;
  void begin_trial() noexcept;
  void renewed(std::uint32_t epoch, Trial trial) noexcept;
  void step_came(Over over, TrafficClass traffic, const wire::Return& said);
  void probe_came(TrafficClass traffic) noexcept;
  void last_came(TrafficClass traffic) noexcept;
  void begin_return() noexcept;
  void use_first() noexcept;
  void abandon() noexcept;
  void abandoned(std::uint32_t epoch) noexcept;
  void end_trial() noexcept;

  Shared& shared_;
  const int rank_;
  State state_ = State::kFirst;
  std::array<Class, kTrafficClasses> classes_;  // of the first network
  std::list<Record> by_second_;                 // that the second network has, in the order of their posts
  std::list<Arriving> arriving_;                // over the first network
  std::size_t unacknowledged_ = 0;              // messages that have come since the last receipts
  std::size_t unacknowledged_bytes_ = 0;
  std::list<Said> said_;
  std::uint64_t said_count_ = 0;
  std::map<std::uint64_t, Coming> coming_;  // by number
  std::optional<wire::Receipts> theirs_;    // the peer's last
  std::string reason_;
  bool tells_ = false;      // the user, who was told that it went back
  std::exception_ptr why_;  // it is lost, or will be
  bool first_lost_ = false, second_lost_ = false;

  std::uint32_t epoch_ = 0;  // of the first network
  Trial trial_ = Trial::kNone;
  std::uint32_t asked_ = 0;          // the epoch of a trial that the peer has asked for and got no answer to; 0: none
  unsigned probes_ = 0, lasts_ = 0;  // classes of which they have come, as bits
  HoldDown hold_down_;
  Instant try_at_{};
  bool leaving_ = false;
};

}  // namespace aiacc::failover
