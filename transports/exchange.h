// Exchange: one operation's messages in the mailbox. Transfer: what the operation awaits: a send, a receive, or one of
// each side by side. Ring and doubling steps need the pair, because two blocking sends that each wait for the other's
// receive would deadlock. Neither has a coroutine frame.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <vector>

#include "base/data/buffer.h"
#include "transports/arriving_payloads.h"
#include "transports/mailbox.h"
#include "transports/operation_traffic.h"

namespace aiacc {

class Exchange;
class Transfer;

// A posted send or receive, one half of a Transfer. It is in its exchange's list until it completes, so that an abort
// finds it, and in its group's index, so that arriving messages find it.
class PostedRequest : public ListNode<PostedRequest>, public MatchNode<PostedRequest> {
 public:
  enum class Kind : std::uint8_t { kSend, kRecv };
  PostedRequest(Transfer& owner, Kind kind, int peer, Tag tag, Buffer buffer) noexcept
      : owner_(owner), buffer_(buffer), peer_(peer), tag_(tag), kind_(kind) {}

  Kind kind() const noexcept { return kind_; }
  int peer() const noexcept { return peer_; }  // world rank
  Tag tag() const noexcept { return tag_; }
  const Exchange& exchange() const noexcept;
  bool matches(std::uint64_t sequence, Tag tag, int peer) const noexcept;
  bool failing() const noexcept { return failing_ != nullptr; }
  bool done() const noexcept { return done_; }

  void start() noexcept;
  // Fails with `reason` as soon as the port has released the buffer; possibly inside this call.
  void revoke(const std::exception_ptr& reason) noexcept;

 protected:
  void finish(const std::exception_ptr& error) noexcept;
  Mailbox& mailbox() const noexcept;
  MatchGroup& group() const noexcept;
  MessageHeader header(MessageKind kind) const noexcept;

  Transfer& owner_;
  Buffer buffer_;
  int peer_;
  Tag tag_;
  Kind kind_;
  bool started_ = false;
  bool done_ = false;
  std::exception_ptr failing_;
};

class PostedSend final : public PostedRequest, private SendCompletion {
 public:
  PostedSend(Transfer& owner, int to, Tag tag, Buffer data, std::size_t most_eager, SendRecord* begun) noexcept
      : PostedRequest(owner, Kind::kSend, to, tag, data), most_eager_(most_eager), begun_(begun) {}
  void begin() noexcept;
  void take_back() noexcept;  // of a failing request
  void cts_came() noexcept;
  bool awaits_cts() const noexcept { return awaits_cts_; }
  void sent(std::exception_ptr error) noexcept override;

 private:
  void post_chunks() noexcept;

  std::size_t most_eager_;   // bytes that go without an RTS, if there is credit for them
  std::size_t next_ = 0;     // first byte that is not posted
  int posts_ = 0;            // posts whose completion is outstanding
  bool awaits_cts_ = false;  // the CTS has not arrived
  SendRecord* begun_;        // what posted it already, or null
};

class PostedReceive final : public PostedRequest {
 public:
  PostedReceive(Transfer& owner, int from, Tag tag, Buffer into, bool bounded, ReceiveRecord* begun) noexcept
      : PostedRequest(owner, Kind::kRecv, from, tag, into), bounded_(bounded), begun_(begun) {}
  std::size_t length() const noexcept { return buffer_.bytes; }
  void begin() noexcept;
  void take_back() noexcept;        // of a failing request
  void unexpected_came() noexcept;  // the unexpected message has arrived completely
  void send_cts(const MessageHeader& rts) noexcept;
  MessageReceiver::Placement place(const MessageHeader& header) noexcept;
  void placed(const MessageHeader& header) noexcept;
  bool has_places() const noexcept { return !placing_.empty(); }
  void peer_lost() noexcept;  // the port has released every destination
  void ended() noexcept;

 private:
  void note_arriving() noexcept;
  bool fits(const MessageHeader& header) noexcept;
  bool take_unexpected() noexcept;
  bool take_over() noexcept;
  void settle(const MessageHeader& message) noexcept;

  std::size_t received_ = 0;
  bool cts_sent_ = false;
  bool arriving_ = false;  // counted in Group::arriving
  bool bounded_;           // the sender decides the length, which is not known yet
  ReceiveRecord* begun_;   // what was posted already, or null
  ArrivingPayloads placing_;
};

class Transfer final : public Leaf {
 public:
  struct To {
    int rank;
    Tag tag;
    Buffer data;
    SendRecord* begun = nullptr;  // this message, which is posted already
    bool swaps = false;           // that rank sends this one something at the same time, in another transfer
  };
  struct From {
    int rank;
    Tag tag;
    Buffer into;
    bool bounded = false;  // `into` is an upper bound; received() is the actual length
    ReceiveRecord* begun = nullptr;
    bool swaps = false;  // likewise
  };
  Transfer(Exchange& exchange, Stop& stop, std::optional<To> to, std::optional<From> from);

  Exchange& exchange() const noexcept { return exchange_; }
  // Bytes that the receive got. Valid after the transfer has succeeded.
  std::size_t received() const noexcept { return recv_ ? recv_->length() : 0; }

  // Starts the transfer before it is awaited. Once it has ended(), awaiting it is optional.
  void start() {
    begin_unawaited();
    started_ = true;
  }
  bool ended() const noexcept { return ended_; }
  bool await_ready() { return started_ ? ended_ : Leaf::await_ready(); }
  void await_suspend(std::coroutine_handle<> self) { started_ ? resume_at(self) : Leaf::await_suspend(self); }

  // Called by its send and its receive when they are over.
  void request_done(PostedRequest& request, const std::exception_ptr& error) noexcept;

 private:
  bool try_now() override;
  void begin() noexcept override;
  void cancel() noexcept override {}
  bool revoke(const std::exception_ptr& reason) noexcept override;

  Exchange& exchange_;
  std::optional<PostedSend> send_;
  std::optional<PostedReceive> recv_;
  int pending_ = 0;
  bool started_ = false;  // by start(), before any await
  bool ended_ = false;
  std::exception_ptr error_;
};

// Keeps the operation registered with the mailbox while it lives, so that its call can be compared with other members'
// calls. It lives in the algorithm's coroutine frame and outlives its transfers.
class Exchange final : public ListNode<Exchange>, public MatchNode<Exchange> {
 public:
  static constexpr std::uint64_t kPairSequence = aiacc::kPairSequence;

  // `rank` is this rank in `view`. Throws the group's error if it is aborted.
  Exchange(Mailbox& mailbox, const ViewPtr& view, int rank, const WireId& id, std::uint64_t fingerprint, CallNote note);
  ~Exchange();

  // Ranks are those of the view. Both ends must give the same length, except with recv_at_most().
  // `begun` is what was posted of the message before there was an operation for it.
  Transfer send(int to, Tag tag, Buffer data, Stop& stop, SendRecord* begun = nullptr, bool swaps = false) {
    return Transfer(*this, stop, Transfer::To{to, tag, data, begun, swaps}, std::nullopt);
  }
  Transfer recv(int from, Tag tag, Buffer into, Stop& stop, ReceiveRecord* begun = nullptr, bool swaps = false) {
    return Transfer(*this, stop, std::nullopt, Transfer::From{from, tag, into, false, begun, swaps});
  }
  // Receives a message whose length the sender decides, up to the buffer's length. The length in an early RTS is then
  // only an upper bound too.
  Transfer recv_at_most(int from, Tag tag, Buffer into, Stop& stop) {
    return Transfer(*this, stop, std::nullopt, Transfer::From{from, tag, into, true});
  }
  Transfer send_recv(Transfer::To to, Transfer::From from, Stop& stop) { return Transfer(*this, stop, to, from); }
  // Announces a message of that length, to be sent once its payload is ready (or of at most that length, if the
  // receiver uses recv_at_most()). If the length requires an RTS, the RTS leaves now and may overtake other messages of
  // this rank; otherwise nothing happens. If the operation fails, the send may never follow. `swaps`: the transfer of that message
  // receives one of the same rank.
  void send_early_rts(int to, Tag tag, std::size_t bytes, bool swaps = false) noexcept;

  // As MessagePort::chunks_in_flight().
  int chunks_in_flight(int to) const noexcept;

  int rank() const noexcept { return group_.rank; }
  int size() const noexcept { return group_.view->size(); }
  Loop& loop() const noexcept { return mailbox_.loop(); }

  // The operation also waits for local peers, which the mailbox does not see. `rank` is the next of them; it is the
  // suspected straggler while no message is waited for.
  void set_local_peer(int rank) noexcept { local_peer_ = rank; }
  void set_traffic(OperationTraffic traffic) noexcept { traffic_ = traffic; }
  // Two members that send each other something in one step do so eagerly up to Mailbox::kLongSwapBytes, unless the port's chunks are
  // shorter.
  void swap_long() noexcept { swaps_long_ = mailbox_.port().chunk_bytes() >= Mailbox::kLongSwapBytes; }
  bool swaps_long() const noexcept { return swaps_long_; }
  std::size_t most_eager(bool swaps) const noexcept {
    if (!swaps) return Mailbox::kEagerBytes;
    return swaps_long_ ? Mailbox::kLongSwapBytes : Mailbox::kSwappedEagerBytes;
  }
  // Sends its eager messages without batching (MessagePort::post_now).
  void set_immediate(bool immediate) noexcept { immediate_ = immediate; }

  // --- for the mailbox, for transfers, and for who looks into stalled operations ---------------------------------------------
  const WireId& id() const noexcept { return id_; }
  std::uint64_t fingerprint() const noexcept { return fingerprint_; }
  const CallNote& note() const noexcept { return note_; }
  int local_peer() const noexcept { return local_peer_; }
  bool immediate() const noexcept { return immediate_; }
  Mailbox& mailbox() const noexcept { return mailbox_; }
  MatchGroup& group() const noexcept { return group_; }
  IntrusiveList<PostedRequest>& parts() noexcept { return parts_; }
  IntrusiveList<PostedRequest>& ending() noexcept { return ending_; }
  // Fails all its transfers.
  void fail(const std::exception_ptr& error) noexcept;
  struct EarlyRts {
    int peer;  // world rank
    Tag tag;
    bool cts_came;
  };
  EarlyRts* early_rts(int peer, Tag tag) noexcept;
  std::optional<EarlyRts> take_early_rts(int peer, Tag tag) noexcept;
  MessageHeader header(MessageKind kind, int peer, Tag tag, std::size_t bytes) const noexcept;

 private:
  void enlist(IntrusiveList<Exchange>& those) noexcept;

  Mailbox& mailbox_;
  MatchGroup& group_;
  const WireId id_;
  std::uint64_t fingerprint_;
  IntrusiveList<PostedRequest> parts_;   // in progress, in the order in which they began
  IntrusiveList<PostedRequest> ending_;  // of an aborted group: requests that are being failed
  CallNote note_;
  int local_peer_ = kNoPeer;
  OperationTraffic traffic_;
  bool swaps_long_ = false;
  bool immediate_ = false;
  std::vector<EarlyRts> early_rts_;  // announced, but the send has not begun
};

}  // namespace aiacc
