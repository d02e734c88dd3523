#include "transports/tcp/tcp_port.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transports/tcp/door.h"
#include "transports/tcp/link.h"
#include "transports/tcp/shared.h"

namespace aiacc {

class TcpPort::Engine final : public tcp::Shared, private tcp::DoorOwner, private Job {
 public:
  Engine(Loop& its_loop, io::Net& its_net, std::unique_ptr<io::Listener> listener, Settings its_settings)
      : Shared(its_loop, its_net, std::move(its_settings)), door_(*this, *this, std::move(listener)) {
    for (int rank = 0; rank < size(); ++rank) links_.push_back(std::make_unique<tcp::Link>(*this, rank));
  }
  ~Engine() { close(); }

  void begin(MessageReceiver& its_receiver) noexcept {
    receiver = &its_receiver;
    door_.open();
    for (const std::unique_ptr<tcp::Link>& each : links_) each->begin();
  }

  tcp::Link* link(int rank) noexcept {
    const bool other = rank >= 0 && rank < size() && rank != settings.rank;
    return other ? links_[static_cast<std::size_t>(rank)].get() : nullptr;
  }
  void post(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces, SendCompletion& completion,
            bool now) noexcept {
    tcp::Link* its = link(to_rank);
    if (its == nullptr) {
      const Error error(Code::kInvalidArgument, fmt::format("there is no other rank {} to send to", to_rank));
      tell_later({tcp::Told::What::kSent, to_rank, &completion, std::make_exception_ptr(error), {}});
    } else if (!closed) {
      its->post(header, pieces, completion, now);
    }
  }
  void withdraw(SendCompletion& completion) {
    for (const std::unique_ptr<tcp::Link>& each : links_) each->withdraw(completion);
  }

  void tell_later(tcp::Told told) noexcept override {
    if (closed) return;
    told_.push_back(std::move(told));
    if (!Job::linked()) loop.post(*this);
  }

  void close() noexcept {
    if (closed) return;
    closed = true;
    Job::unlink();
    told_.clear();
    door_.close();
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
  tcp::Terms terms_for(int rank) noexcept override { return link(rank)->my_terms(); }
  void let_in(int rank, std::unique_ptr<io::Stream> stream, const tcp::Terms& theirs, wire::Bytes preface) override {
    link(rank)->accept(std::move(stream), theirs, std::move(preface));
  }

  void run() noexcept override {
    for (tcp::Told& told : std::exchange(told_, {})) {
      if (closed) return;
      switch (told.what) {
        case tcp::Told::What::kSent: told.completion->sent(std::move(told.error)); break;
        case tcp::Told::What::kRevoked: receiver->on_placed(told.rank, told.header); break;
        case tcp::Told::What::kRelease: link(told.rank)->ask_held_again(); break;
        case tcp::Told::What::kLost: link(told.rank)->lose(std::move(told.error)); break;
      }
    }
  }

  std::vector<tcp::Told> told_;
  std::vector<std::unique_ptr<tcp::Link>> links_;  // by rank; mine stays untouched
  tcp::Door door_;
};

TcpPort::TcpPort(Loop& loop, io::Net& net, std::unique_ptr<io::Listener> listener, Settings settings)
    : engine_(std::make_unique<Engine>(loop, net, std::move(listener), std::move(settings))) {
  AIACC_INVARIANT(engine_->settings.entropy != nullptr && !engine_->settings.secret.none(),
                  "a port has a secret and a source of nonces");
}

TcpPort::~TcpPort() = default;

void TcpPort::set_receiver(MessageReceiver& receiver) noexcept { engine_->begin(receiver); }

void TcpPort::post(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces,
                   SendCompletion& completion) noexcept {
  engine_->post(to_rank, header, pieces, completion, false);
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

void TcpPort::encrypt() noexcept { engine_->encrypts = true; }

std::string TcpPort::obstacle(int rank) const {
  const tcp::Link* link = engine_->link(rank);
  return link == nullptr ? std::string() : link->obstacle();
}

Task<void> TcpPort::leave(Duration limit, Stop& stop) { return engine_->leave(limit, stop); }

void TcpPort::lose(int rank, std::exception_ptr why) noexcept {
  if (engine_->link(rank) == nullptr) return;
  engine_->tell_later({tcp::Told::What::kLost, rank, nullptr, std::move(why), {}});
}

std::uint64_t TcpPort::refused() const noexcept { return engine_->refused; }

}  // namespace aiacc
