// Link: all messages between this rank and one other.
#pragma once

#include <array>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "transports/active/loss_watch.h"
#include "transports/active/outgoing.h"
#include "transports/active/shared.h"
#include "transports/qos/class_turns.h"
#include "transports/qos/class_windows.h"

namespace aiacc::active {

class Link final : private Timer, private LossWatch::Owner {
 public:
  // The endpoint for a traffic class, or for several that have the same worker at both ends.
  struct Way {
    Link* link = nullptr;
    Endpoint* endpoint = nullptr;
    bool heard = false;   // of the peer
    bool broken = false;  // from then on
    bool closed = false;  // it had an endpoint
  };

  Link(Shared& shared, int rank, std::uint32_t epoch);

  // `now`: the completion may be told from inside.
  void post(const MessageHeader& header, std::span<const Buffer> pieces, SendCompletion& completion, bool now);
  void withdraw(Outgoing& message) noexcept;
  void revoke(const MessageHeader& header) noexcept;
  void ask_held_again() noexcept;
  // Begins to lose the peer, which is told when nothing accesses lent memory any more.
  void lose(std::exception_ptr why) noexcept;
  void leave() noexcept;
  std::uint32_t epoch() const noexcept { return epoch_; }
  bool is_lost() const noexcept { return lost_; }  // and nothing of it is under way
  bool has_abandoned() const noexcept { return !abandoned_.empty(); }
  bool has_left() const noexcept;
  void path_broken() noexcept;
  std::optional<BrokenPath> broken_path() const;
  void settle() noexcept;  // tells what has ended
  // Before and after the worker is closed: gives kept payloads back; forgets what was under way.
  void close() noexcept;
  void forget() noexcept;

  // Of the module.
  bool arrived(Worker* at, const Frame& frame, std::span<const std::byte> rest, void* payload, std::size_t bytes,
               bool eager) noexcept;
  void sent(Outgoing& message, const char* problem) noexcept;
  void fetched(Fetch& fetch, const char* problem) noexcept;
  void broken(Way& way, const char* problem) noexcept;
  void closed(Way& way) noexcept;

 private:
  // A message that has come, or a part of one. If it outlasts the module's callback, its payload is kept by the module, or is a copy.
  struct Arrived {
    MessageHeader header;
    Worker* at = nullptr;  // which has the payload
    std::uint64_t number = 0;
    void* payload = nullptr;
    std::size_t bytes = 0;  // of the payload
    bool eager = true;
    bool asks = false;                  // and nothing was said about it
    std::uint64_t offset = 0;           // of a part
    std::shared_ptr<std::byte[]> copy;  // of an eager payload
  };
  struct Patience final : Timer {  // with a broken path
    Link* link = nullptr;
    void expired() noexcept override;
  };
  struct Pacing final : Timer {  // until a class may begin another message
    Link* link = nullptr;
    void expired() noexcept override;
  };
  struct Class {
    std::list<Outgoing> waiting;             // that have not begun, and have no number yet
    std::uint64_t sent = 0;                  // messages
    std::uint64_t offered = 0;               // to the receiver
    std::map<std::uint64_t, Arrived> early;  // behind one that has not come
    std::set<std::uint64_t> withdrawn;       // that have not been offered
    Arrived joined;                          // of a message that comes in parts, those that have come
  };

  static constexpr std::size_t index_of(TrafficClass traffic) noexcept { return static_cast<std::size_t>(traffic); }
  Class& class_of(TrafficClass traffic) noexcept { return classes_[index_of(traffic)]; }
  void broken(const char* problem) noexcept;
  Way& way_of(TrafficClass traffic) noexcept { return ways_[way_of_[index_of(traffic)]]; }
  bool connected() const noexcept;
  bool is_fetching() const noexcept;
  void disconnect() noexcept;
  bool message_came(const Frame& frame, Arrived& one) noexcept;
  static bool keep(Arrived& one);
  void part_came(const Arrived& one) noexcept;
  bool in_turn(const Arrived& one, bool kept) noexcept;
  void counts_came(const Counts& counts) noexcept;
  void say_counts() noexcept override;
  Counts gaps() const noexcept override;
  void messages_lost() noexcept override;
  bool offer(const Arrived& one, bool kept) noexcept;
  void drop(const Arrived& one) noexcept;
  void forget(Fetch& fetch) noexcept;
  void fetch_into(const Arrived& one, const Buffer& place) noexcept;
  void withdrawn_came(const Frame& frame) noexcept;
  void acknowledge(const MessageHeader& header, std::uint64_t number, bool asks) noexcept;
  void acknowledged(const Frame& frame) noexcept;
  void farewell_came(const Counts& counts) noexcept;
  void answer_farewell() noexcept;
  void say_farewell() noexcept;
  void say(FrameKind kind, TrafficClass traffic = TrafficClass::kControl, std::uint64_t number = 0) noexcept;

  Outgoing& add(std::list<Outgoing>& to);
  bool begin(Outgoing& one) noexcept;
  std::uint64_t next_bytes(const Outgoing& one) noexcept;
  Outgoing& take_part(Outgoing& of, std::uint64_t bytes);
  void begin_waiting() noexcept;
  void fail_waiting(std::exception_ptr error) noexcept;
  unsigned waiting_classes() const noexcept;  // a bit for each
  bool waits() const noexcept { return waiting_classes() != 0; }
  bool connect(TrafficClass traffic) noexcept;
  bool transmit(Outgoing& one, std::size_t header_bytes, const void* header) noexcept;
  void ended(Outgoing& one, std::exception_ptr error) noexcept;
  void settle_later() noexcept;
  void lost_by(Code code, const std::string& what) noexcept;
  void tell_lost() noexcept;
  void watch_answer(Instant since) noexcept;
  void expired() noexcept override;
  std::exception_ptr has_gone() const;

  Shared& shared_;
  int rank_;
  const std::uint32_t epoch_;       // of its frames
  std::array<Way, kClasses> ways_;  // those of the classes in way_of_
  std::array<std::size_t, kClasses> way_of_{};
  std::array<Class, kClasses> classes_;
  ClassTurns turns_;
  ClassWindows windows_;
  Pacing pacing_;
  std::list<Outgoing> outgoing_;  // under way
  std::list<Outgoing> control_;   // frames of the port's own that are under way
  std::list<Outgoing> ended_;     // to be told
  std::list<Fetch> fetches_;
  std::list<Fetch> abandoned_;  // without a place, for the module
  std::list<Arrived> held_;
  std::size_t held_bytes_ = 0;
  std::exception_ptr losing_;      // the reason, from then on when the peer counts as lost
  std::optional<Instant> broken_;  // since when the endpoint is
  std::string problem_;            // of the broken endpoint
  Patience patience_;
  LossWatch losses_;
  Counts announced_{};            // messages of the peer's: at least so many
  bool lost_ = false;             // the receiver knows
  bool endpoint_broken_ = false;  // after the peer had left
  bool leaving_ = false;
  bool farewell_said_ = false;
  bool farewell_answered_ = false;
  bool peer_left_ = false;
  std::optional<Counts> their_counts_;  // of their farewell
};

}  // namespace aiacc::active
