#include "transports/failover/failover_port.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "base/task/loop.h"
#include "transports/failover/link.h"

namespace aiacc {

class FailoverPort::Engine final : public failover::Shared, private Job {
 public:
  Engine(Loop& its_loop, Networks networks, int its_rank, std::vector<std::string> its_names)
      : links_changed(its_loop),
        networks_(std::move(networks)),
        first_side_(*this, failover::Over::kFirst),
        second_side_(*this, failover::Over::kSecond) {
    loop = &its_loop;
    failback = networks_.failback;
    first = networks_.first.get();
    second = networks_.second.get();
    first_name = networks_.first_name;
    second_name = networks_.second_name;
    rank = its_rank;
    names = std::move(its_names);
    for (int peer = 0; peer < static_cast<int>(names.size()); ++peer) links_.emplace_back(*this, peer);
  }
  ~Engine() { close(); }

  void begin(MessageReceiver& its_receiver) noexcept {
    receiver = &its_receiver;
    first->set_receiver(first_side_);
    second->set_receiver(second_side_);
    if (!notifications_.empty() && !Job::linked()) loop->post(*this);
  }

  failover::Link* link(int peer) noexcept {
    const bool other = peer >= 0 && peer < static_cast<int>(links_.size()) && peer != rank;
    return other && !closed ? &links_[static_cast<std::size_t>(peer)] : nullptr;
  }
  const MessagePort& port_to(int peer) noexcept {
    const failover::Link* const its = link(peer);
    return its == nullptr || its->uses_first() ? *first : *second;
  }

  void post(int to, const MessageHeader& header, std::span<const Buffer> pieces, SendCompletion& completion,
            bool now) noexcept {
    if (closed) return;
    if (failover::Link* const its = link(to)) return its->post(header, pieces, completion, now);
    const Error error(Code::kInvalidArgument, fmt::format("there is no other rank {} to send to", to));
    notify_later({What::kTold, to, &completion, std::make_exception_ptr(error), {}});
  }

  void withdraw(SendCompletion& completion) noexcept {
    if (closed) return;
    completion.untold.for_each([](SendCompletion::Message& each) {
      auto& record = static_cast<failover::Record&>(each);
      record.link->withdraw(record);
    });
  }

  Task<void> leave(Duration limit, Stop& stop) {
    const Instant end = after(now(), limit);
    for (failover::Link& each : links_) each.stop_trials();
    co_await until_none_switches(end, stop);
    if (!closed) co_await first->leave(std::max(end - now(), Duration::zero()), stop);
    co_await until_none_switches(end, stop);
    if (!closed) co_await second->leave(std::max(end - now(), Duration::zero()), stop);
  }

  Task<void> until_none_switches(Instant end, Stop& stop) {
    Stop waiting(stop);
    const Deadline deadline(*loop, end, waiting, "a peer did not come to the other network in time");
    const auto switching = [this] {
      return !closed &&
             std::any_of(links_.begin(), links_.end(), [](const failover::Link& each) { return each.is_switching(); });
    };
    try {
      while (switching()) co_await links_changed.wait(waiting);
    } catch (...) {
      if (stop.requested()) throw;
    }
  }

  void close() noexcept {
    if (closed) return;
    closed = true;
    Job::unlink();
    notifications_.clear();
    first->close();
    second->close();
    for (failover::Link& each : links_) each.forget();
    links_changed.set();
  }

  void notify_later(Notification notification) noexcept override {
    if (closed) return;
    notifications_.push_back(std::move(notification));
    if (!Job::linked()) loop->post(*this);
  }
  void remark(const std::string& sentence) noexcept override {
    if (listener) listener(sentence);
  }
  void link_changed() noexcept override {
    links_changed.set();
    links_changed.reset();
  }

  Event links_changed;
  std::function<void(const std::string&)> listener;

 private:
  // What one of the networks tells.
  class Side final : public MessageReceiver {
   public:
    Side(Engine& engine, failover::Over over) : engine_(engine), over_(over) {}
    Placement on_header(int from, const MessageHeader& header) noexcept override {
      failover::Link* const its = engine_.link(from);
      return its == nullptr ? Placement{} : its->on_header(over_, header);
    }
    void on_placed(int from, const MessageHeader& header) noexcept override {
      if (failover::Link* const its = engine_.link(from)) its->on_placed(over_, header);
    }
    void on_peer_lost(int from, std::exception_ptr error) noexcept override {
      if (failover::Link* const its = engine_.link(from)) its->on_lost(over_, std::move(error));
    }
    void on_path_broken(int from) noexcept override {
      if (failover::Link* const its = engine_.link(from)) its->on_broken(over_);
    }

   private:
    Engine& engine_;
    const failover::Over over_;
  };

  void run() noexcept override {
    if (receiver == nullptr) return;
    for (Notification& notification : std::exchange(notifications_, {})) {
      if (closed) return;
      switch (notification.what) {
        case What::kTold: notification.completion->sent(std::move(notification.error)); break;
        case What::kRevoked: receiver->on_placed(notification.rank, notification.header); break;
        case What::kAsked: link(notification.rank)->answer(); break;
      }
    }
  }

  Networks networks_;
  Side first_side_;
  Side second_side_;
  std::deque<failover::Link> links_;  // by rank; mine stays untouched
  std::vector<Notification> notifications_;
};

FailoverPort::FailoverPort(Loop& loop, Networks networks, int rank, std::vector<std::string> names)
    : engine_(std::make_unique<Engine>(loop, std::move(networks), rank, std::move(names))) {}

FailoverPort::~FailoverPort() = default;

void FailoverPort::set_receiver(MessageReceiver& receiver) noexcept { engine_->begin(receiver); }

void FailoverPort::post(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces,
                        SendCompletion& completion) noexcept {
  engine_->post(to_rank, header, pieces, completion, false);
}

void FailoverPort::post_now(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces,
                            SendCompletion& completion) noexcept {
  engine_->post(to_rank, header, pieces, completion, true);
}

void FailoverPort::release(int from_rank) noexcept {
  if (failover::Link* const link = engine_->link(from_rank)) link->release();
}

void FailoverPort::withdraw(SendCompletion& completion) noexcept { engine_->withdraw(completion); }

void FailoverPort::revoke(int from_rank, const MessageHeader& header) noexcept {
  if (failover::Link* const link = engine_->link(from_rank)) link->revoke(header);
}

void FailoverPort::lose(int rank, std::exception_ptr why) noexcept {
  if (failover::Link* const link = engine_->link(rank)) link->lose(std::move(why));
}

void FailoverPort::encrypt() {
  engine_->first->encrypt();
  engine_->second->encrypt();
}

void FailoverPort::authenticate() {
  engine_->first->authenticate();
  engine_->second->authenticate();
}

void FailoverPort::count_traffic(std::vector<ConnectionTraffic>& counted) const {
  engine_->first->count_traffic(counted);
  engine_->second->count_traffic(counted);
}

std::uint64_t FailoverPort::refused() const noexcept { return engine_->first->refused() + engine_->second->refused(); }

std::size_t FailoverPort::chunk_bytes() const noexcept { return engine_->first->chunk_bytes(); }

int FailoverPort::chunks_in_flight(int to_rank) const noexcept {
  // Over the first network a chunk is complete when the peer has said so.
  const failover::Link* const link = engine_->link(to_rank);
  if (link != nullptr && link->uses_first()) return 2 * engine_->first->chunks_in_flight(to_rank);
  return engine_->second->chunks_in_flight(to_rank);
}

void FailoverPort::tell_remarks_to(std::function<void(const std::string&)> listener) {
  engine_->first->tell_remarks_to(listener);
  engine_->second->tell_remarks_to(listener);
  engine_->listener = std::move(listener);
}

void FailoverPort::note_latency() noexcept {
  engine_->first->note_latency();
  engine_->second->note_latency();
}

std::string FailoverPort::obstacle(int rank) const { return engine_->port_to(rank).obstacle(rank); }

std::optional<BrokenPath> FailoverPort::broken_path(int rank) const { return engine_->port_to(rank).broken_path(rank); }

Task<void> FailoverPort::leave(Duration limit, Stop& stop) { return engine_->leave(limit, stop); }

void FailoverPort::close() noexcept { engine_->close(); }

}  // namespace aiacc
