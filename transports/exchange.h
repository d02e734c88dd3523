// Exchange: one operation's part in the mailbox. Transfer: what it awaits, a send, a receive, or one of each side by side
// (as rings and doubling need: two sends that wait for each other's receive would wait for ever). Neither has a frame.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <exception>
#include <optional>
#include <vector>

#include "base/data/buffer.h"
#include "transports/mailbox.h"

namespace aiacc {

// Both halves of a transfer: linked in their group until they are done, so that an abort finds them.
class Mailbox::Part : public ListNode<Part> {
 public:
  enum class Kind : std::uint8_t { kSend, kRecv };
  Part(Transfer& owner, Kind kind, int peer, std::uint32_t tag, Buffer buffer) noexcept
      : owner_(owner), buffer_(buffer), peer_(peer), tag_(tag), kind_(kind) {}

  Kind kind() const noexcept { return kind_; }
  int peer() const noexcept { return peer_; }  // world rank
  std::uint32_t tag() const noexcept { return tag_; }
  const Exchange& exchange() const noexcept;
  bool matches(Kind kind, std::uint64_t sequence, std::uint32_t tag, int peer) const noexcept;
  bool failing() const noexcept { return failing_ != nullptr; }
  bool done() const noexcept { return done_; }

  void start() noexcept;
  // Ends with `reason` as soon as the port has let go of the buffer; perhaps now.
  void let_go(const std::exception_ptr& reason) noexcept;

 protected:
  void finish(const std::exception_ptr& error) noexcept;
  Mailbox& mailbox() const noexcept;
  Group& group() const noexcept;
  MessageHeader header(MessageKind kind) const noexcept;

  Transfer& owner_;
  Buffer buffer_;
  int peer_;
  std::uint32_t tag_;
  Kind kind_;
  bool started_ = false;
  bool done_ = false;
  std::exception_ptr failing_;
};

class Mailbox::SendPart final : public Part, private SendCompletion {
 public:
  SendPart(Transfer& owner, int to, std::uint32_t tag, Buffer data) noexcept
      : Part(owner, Kind::kSend, to, tag, data) {}
  void begin() noexcept;
  void take_back() noexcept;  // of a failing part
  void granted() noexcept;

 private:
  void sent(std::exception_ptr error) noexcept override;
  void post_chunks() noexcept;

  std::size_t next_ = 0;  // first byte that is not posted
  int posts_ = 0;         // whose completion is still to come
  bool offered_ = false;  // and not granted yet
};

class Mailbox::RecvPart final : public Part {
 public:
  RecvPart(Transfer& owner, int from, std::uint32_t tag, Buffer into) noexcept
      : Part(owner, Kind::kRecv, from, tag, into) {}
  void begin() noexcept;
  void take_back() noexcept;   // of a failing part
  void early_came() noexcept;  // what came before it was asked for is all there now
  void grant(const MessageHeader& offer) noexcept;
  Placement place(const MessageHeader& header) noexcept;
  void placed(const MessageHeader& header) noexcept;
  bool has_places() const noexcept { return !placing_.empty(); }
  bool arriving() const noexcept { return granted_ || received_ > 0 || !placing_.empty(); }
  void peer_lost() noexcept;  // the port has let go of every place

 private:
  bool fits(const MessageHeader& header) noexcept;
  bool take_early() noexcept;

  std::size_t received_ = 0;
  bool granted_ = false;
  boost::container::small_vector<MessageHeader, 1> placing_;  // a port brings one after another, as a rule
};

class Transfer final : public Leaf {
 public:
  struct To {
    int rank;
    std::uint32_t tag;
    Buffer data;
  };
  struct From {
    int rank;
    std::uint32_t tag;
    Buffer into;
  };
  Transfer(Exchange& exchange, Stop& stop, std::optional<To> to, std::optional<From> from);

  const Exchange& exchange() const noexcept { return exchange_; }

  // Begins it before it is awaited. It may never be awaited once it has ended().
  void start() {
    begin_unawaited();
    started_ = true;
  }
  bool ended() const noexcept { return ended_; }
  bool await_ready() { return started_ ? ended_ : Leaf::await_ready(); }
  void await_suspend(std::coroutine_handle<> self) { started_ ? resume_at(self) : Leaf::await_suspend(self); }

 private:
  friend class Mailbox;
  bool try_now() override;
  void begin() noexcept override;
  void cancel() noexcept override {}
  bool let_go(const std::exception_ptr& reason) noexcept override;
  void part_done(Mailbox::Part& part, const std::exception_ptr& error) noexcept;

  Exchange& exchange_;
  std::optional<Mailbox::SendPart> send_;
  std::optional<Mailbox::RecvPart> recv_;
  int pending_ = 0;
  bool started_ = false;  // without being awaited
  bool ended_ = false;
  std::exception_ptr error_;
};

// Registers the operation while it lives, so that its calls can be compared with those of others. Lives in the frame of
// the algorithm and outlives its transfers.
class Exchange final : public ListNode<Exchange> {
 public:
  static constexpr std::uint64_t kPairSequence = aiacc::kPairSequence;

  // `rank` is mine in `view`. Throws the group's error if it is aborted.
  Exchange(Mailbox& mailbox, const ViewPtr& view, int rank, std::uint64_t sequence, std::uint64_t fingerprint,
           CallNote note);
  ~Exchange();

  // Ranks are those of the view. Lengths must be those of the other end.
  Transfer send(int to, std::uint32_t tag, Buffer data, Stop& stop) {
    return Transfer(*this, stop, Transfer::To{to, tag, data}, std::nullopt);
  }
  Transfer recv(int from, std::uint32_t tag, Buffer into, Stop& stop) {
    return Transfer(*this, stop, std::nullopt, Transfer::From{from, tag, into});
  }
  Transfer send_recv(Transfer::To to, Transfer::From from, Stop& stop) { return Transfer(*this, stop, to, from); }
  // A message of that length will be sent, once it is there. If it is one that is offered, its offer leaves now, and may pass
  // what this rank sends meanwhile; nothing happens otherwise. The send may also never come, when the operation fails.
  void announce(int to, std::uint32_t tag, std::size_t bytes) noexcept;

  int rank() const noexcept { return group_.rank; }
  int size() const noexcept { return group_.view->size(); }
  Loop& loop() const noexcept { return mailbox_.loop_; }

  // The operation also waits for members on this host, of which the mailbox knows nothing. `rank` is the next of them: whom
  // a stall is looked for with when no message is waited for.
  void set_mate(int rank) noexcept { mate_ = rank; }
  // Its payloads go in the class of short messages, before other payloads.
  void set_urgent(bool urgent) noexcept { urgent_ = urgent; }
  // Its eager messages leave at once (MessagePort::post_now).
  void set_hasty(bool hasty) noexcept { hasty_ = hasty; }

 private:
  friend class Mailbox;
  friend class Transfer;
  struct Announced {
    int peer;  // world rank
    std::uint32_t tag;
    bool granted;
  };
  Announced* announced(int peer, std::uint32_t tag) noexcept;
  std::optional<Announced> take_announced(int peer, std::uint32_t tag) noexcept;
  MessageHeader header(MessageKind kind, int peer, std::uint32_t tag, std::size_t bytes) const noexcept;

  Mailbox& mailbox_;
  Mailbox::Group& group_;
  std::uint64_t sequence_;
  std::uint64_t fingerprint_;
  CallNote note_;
  Mailbox::Suspicion suspicion_;  // of an investigation
  int questions_ = 0;
  int mate_ = kNoPeer;
  bool urgent_ = false;
  bool hasty_ = false;
  std::vector<Announced> announced_;  // whose send has not begun
  std::vector<char> begun_;  // of a survey: by rank, whether it has answered that it has begun this; else empty
};

}  // namespace aiacc
