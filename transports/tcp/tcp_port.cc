#include "transports/tcp/tcp_port.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transports/tcp/data_acceptor.h"
#include "transports/tcp/link.h"
#include "transports/tcp/shared.h"

namespace aiacc {

class TcpPort::Engine final : public tcp::Shared, private tcp::DataAcceptorOwner, private Job {
 public:
  Engine(Loop& its_loop, io::Net& its_net, std::unique_ptr<io::Listener> listener, Settings its_settings)
      : Shared(its_loop, its_net, std::move(its_settings)), acceptor_(*this, *this, std::move(listener)) {
    for (int rank = 0; rank < size(); ++rank) links_.push_back(std::make_unique<tcp::Link>(*this, rank));
  }
  ~Engine() { close(); }

  void begin(MessageReceiver& its_receiver) noexcept {
    receiver = &its_receiver;
    acceptor_.open();
    for (const std::unique_ptr<tcp::Link>& each : links_) each->begin();
    if (!notifications_.empty() && !Job::linked()) loop.post(*this);
  }

  tcp::Link* link(int rank) noexcept {
    const bool other = rank >= 0 && rank < size() && rank != settings.rank;
    return other ? links_[static_cast<std::size_t>(rank)].get() : nullptr;
  }
  void count_traffic(std::vector<ConnectionTraffic>& counted) const {
    for (const std::unique_ptr<tcp::Link>& each : links_) each->count_traffic(counted);
  }
  void post(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces, SendCompletion& completion,
            bool now) noexcept {
    tcp::Link* its = link(to_rank);
    if (its == nullptr) {
      const Error error(Code::kInvalidArgument, fmt::format("there is no other rank {} to send to", to_rank));
      notify_later({tcp::Notification::What::kSent, to_rank, &completion, std::make_exception_ptr(error), {}});
    } else if (!closed) {
      its->post(header, pieces, completion, now);
    }
  }
  void withdraw(SendCompletion& completion) {
    completion.untold.for_each([this](SendCompletion::Message& each) {
      auto& message = static_cast<tcp::Outgoing&>(each);
      links_[static_cast<std::size_t>(message.to)]->withdraw(message);
    });
  }

  void notify_later(tcp::Notification notification) noexcept override {
    if (closed) return;
    notifications_.push_back(std::move(notification));
    if (!Job::linked()) loop.post(*this);
  }

  void close() noexcept {
    if (closed) return;
    closed = true;
    Job::unlink();
    notifications_.clear();
    acceptor_.close();
    for (const std::unique_ptr<tcp::Link>& each : links_) each->close();
    links_changed.set();
  }

  Task<void> leave(Duration limit, Stop& stop) {
    for (const std::unique_ptr<tcp::Link>& each : links_) each->leave();
    Stop waiting(stop);
    const Deadline deadline(loop, after(loop.now(), limit), waiting, "a peer did not answer the farewell in time");
    const auto all_left = [this] {
      return closed || std::all_of(links_.begin(), links_.end(),
                                   [](const std::unique_ptr<tcp::Link>& each) { return each->has_left(); });
    };
    try {
      while (!all_left()) co_await links_changed.wait(waiting);
    } catch (...) {
      if (stop.requested()) throw;
    }
  }

 private:
  wire::Verdict judge(int rank, const tcp::Terms& theirs) noexcept override { return link(rank)->judge(theirs); }
  void turn_away(int rank, const Error& why) noexcept override { link(rank)->lose(std::make_exception_ptr(why)); }
  tcp::Terms terms_for(int rank, std::size_t stream) noexcept override { return link(rank)->my_terms(stream); }
  void mark(int rank, const tcp::Terms& theirs, const io::Stream& stream) noexcept override {
    link(rank)->mark(theirs.stream, stream);
  }
  void let_in(int rank, std::unique_ptr<io::Stream> stream, const tcp::Terms& theirs, wire::Bytes preface) override {
    link(rank)->accept(std::move(stream), theirs, std::move(preface));
  }

  void run() noexcept override {
    if (receiver == nullptr) return;  // begin() posts this again: a loss is told once, and somebody must hear of it
    for (tcp::Notification& notification : std::exchange(notifications_, {})) {
      if (closed) return;
      switch (notification.what) {
        case tcp::Notification::What::kSent: notification.completion->sent(std::move(notification.error)); break;
        case tcp::Notification::What::kRevoked: receiver->on_placed(notification.rank, notification.header); break;
        case tcp::Notification::What::kRelease: link(notification.rank)->ask_held_again(); break;
        case tcp::Notification::What::kBroken: receiver->on_path_broken(notification.rank); break;
        case tcp::Notification::What::kLost: link(notification.rank)->lose(std::move(notification.error)); break;
      }
    }
  }

  std::vector<tcp::Notification> notifications_;
  std::vector<std::unique_ptr<tcp::Link>> links_;  // by rank; mine stays untouched
  tcp::DataAcceptor acceptor_;
};

TcpPort::TcpPort(Loop& loop, io::Net& net, std::unique_ptr<io::Listener> listener, Settings settings)
    : engine_(std::make_unique<Engine>(loop, net, std::move(listener), std::move(settings))) {
  AIACC_INVARIANT(engine_->settings.streams.least >= 1 && engine_->settings.streams.most <= kMostStreams,
                  "a pair has 1 to 64 connections");
  AIACC_INVARIANT(engine_->settings.entropy != nullptr && !engine_->settings.secret.none(),
                  "a port has a secret and a source of nonces");
}

TcpPort::~TcpPort() = default;

void TcpPort::set_receiver(MessageReceiver& receiver) noexcept { engine_->begin(receiver); }

void TcpPort::post(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces,
                   SendCompletion& completion) noexcept {
  engine_->post(to_rank, header, pieces, completion, false);
}

void TcpPort::note_latency() noexcept { engine_->latency_use.note(engine_->loop.now()); }

int TcpPort::chunks_in_flight(int to_rank) const noexcept {
  const tcp::Link* const link = engine_->link(to_rank);
  return link != nullptr ? link->chunks_in_flight() : MessagePort::chunks_in_flight(to_rank);
}

void TcpPort::post_now(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces,
                       SendCompletion& completion) noexcept {
  engine_->post(to_rank, header, pieces, completion, true);
}

void TcpPort::release(int from_rank) noexcept {
  if (tcp::Link* link = engine_->link(from_rank)) link->release();
}

void TcpPort::withdraw(SendCompletion& completion) noexcept { engine_->withdraw(completion); }

void TcpPort::revoke(int from_rank, const MessageHeader& header) noexcept {
  if (tcp::Link* link = engine_->link(from_rank)) link->revoke(header);
}

void TcpPort::close() noexcept { engine_->close(); }

void TcpPort::encrypt() noexcept { engine_->protection = wire::Protection::kEncrypted; }

void TcpPort::authenticate() noexcept { engine_->protection = wire::fastest_authentication(); }

void TcpPort::tell_remarks_to(std::function<void(const std::string&)> listener) {
  engine_->remark = std::move(listener);
}

std::string TcpPort::obstacle(int rank) const {
  const tcp::Link* link = engine_->link(rank);
  return link == nullptr ? std::string() : link->obstacle();
}

std::optional<BrokenPath> TcpPort::broken_path(int rank) const {
  const tcp::Link* link = engine_->link(rank);
  return link == nullptr ? std::nullopt : link->broken_path();
}

Task<void> TcpPort::leave(Duration limit, Stop& stop) { return engine_->leave(limit, stop); }

void TcpPort::lose(int rank, std::exception_ptr why) noexcept {
  if (engine_->link(rank) == nullptr) return;
  engine_->notify_later({tcp::Notification::What::kLost, rank, nullptr, std::move(why), {}});
}

void TcpPort::count_traffic(std::vector<ConnectionTraffic>& counted) const { engine_->count_traffic(counted); }

std::uint64_t TcpPort::refused() const noexcept { return engine_->refused; }

int TcpPort::connections(int rank) const noexcept {
  const tcp::Link* link = engine_->link(rank);
  return link == nullptr ? 0 : link->connections();
}

int TcpPort::wanted_connections(int rank) const noexcept {
  const tcp::Link* link = engine_->link(rank);
  return link == nullptr ? 0 : link->wanted_connections();
}

std::uint64_t TcpPort::parts_sent() const noexcept { return engine_->parts_sent; }

std::uint64_t TcpPort::parts_again() const noexcept { return engine_->parts_again; }

}  // namespace aiacc
