#include "transports/active/active_port.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/io/real_clock.h"
#include "transports/active/link.h"
#include "transports/active/shared.h"

namespace aiacc {
namespace {

active::Token token_of(const wire::Secret& secret, std::uint64_t job) {
  constexpr char kPurpose[] = "aiacc active frame";
  unsigned char text[sizeof kPurpose + sizeof job];
  std::memcpy(text, kPurpose, sizeof kPurpose);
  std::memcpy(text + sizeof kPurpose, &job, sizeof job);
  std::array<unsigned char, crypto_generichash_BYTES_MIN> digest;
  crypto_generichash(digest.data(), digest.size(), text, sizeof text,
                     reinterpret_cast<const unsigned char*>(secret.bytes().data()), secret.bytes().size());
  active::Token token;
  std::copy_n(digest.begin(), token.size(), token.begin());
  return token;
}

}  // namespace

class ActivePort::Engine final : public active::Shared, private Job, private io::Poller, private io::BlockGuard {
 public:
  Engine(io::RealLoop& its_loop, const active::Module& its_module, std::vector<active::Worker*> its_workers,
         Settings its_settings)
      : Shared(its_loop, its_module, std::move(its_workers), std::move(its_settings)), real_loop_(its_loop) {
    token = token_of(settings.secret, settings.job);
    for (active::Worker* each : workers) drives_.push_back(std::make_unique<Drive>(*this, each));
    for (int rank = 0; rank < size(); ++rank) links_.push_back(std::make_unique<active::Link>(*this, rank, 0));
  }
  ~Engine() { close(); }

  void begin(MessageReceiver& its_receiver) noexcept {
    receiver = &its_receiver;
    active::Callbacks callbacks;
    callbacks.arrived = [](void* owner, const void* header, std::size_t header_bytes, void* payload, std::size_t bytes,
                           bool eager) noexcept {
      const std::span<const std::byte> text(static_cast<const std::byte*>(header), header_bytes);
      const auto* const at = static_cast<Drive*>(owner);
      return at->engine.arrived(at->worker, text, payload, bytes, eager);
    };
    callbacks.sent = [](void*, active::Operation& operation, const char* problem) noexcept {
      auto& one = static_cast<active::Outgoing&>(operation);
      one.link->sent(one, problem);
    };
    callbacks.fetched = [](void*, active::Operation& operation, const char* problem) noexcept {
      auto& one = static_cast<active::Fetch&>(operation);
      one.link->fetched(one, problem);
    };
    callbacks.broken = [](void*, void* peer, const char* problem) noexcept {
      auto& way = *static_cast<active::Link::Way*>(peer);
      way.link->broken(way, problem);
    };
    callbacks.closed = [](void*, void* peer) noexcept {
      auto& way = *static_cast<active::Link::Way*>(peer);
      way.link->closed(way);
    };
    callbacks.draw = [](void*) noexcept {
      std::uint64_t number = 0;
      io::RealEntropy().fill(std::as_writable_bytes(std::span(&number, 1)));
      return number;
    };
    for (const std::unique_ptr<Drive>& each : drives_) {
      callbacks.owner = each.get();
      module.call_back(each->worker, callbacks);
      real_loop_.watch_once(*each, module.descriptor(each->worker), true, false);
    }
    real_loop_.add(static_cast<io::Poller&>(*this));
    real_loop_.add(static_cast<io::BlockGuard&>(*this));
    if (!notifications_.empty() && !Job::linked()) loop.post(*this);
  }

  int size() const noexcept { return static_cast<int>(settings.peers.size()); }
  active::Link* link(int rank) noexcept {
    const bool other = rank >= 0 && rank < size() && rank != settings.rank;
    return other && !closed ? links_[static_cast<std::size_t>(rank)].get() : nullptr;
  }

  void post(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces, SendCompletion& completion,
            bool now) noexcept {
    if (closed) return;
    if (active::Link* its = link(to_rank)) return its->post(header, pieces, completion, now);
    const Error error(Code::kInvalidArgument, fmt::format("there is no other rank {} to send to", to_rank));
    notify_later({active::Notification::What::kTold, to_rank, &completion, std::make_exception_ptr(error), {}});
  }

  void withdraw(SendCompletion& completion) noexcept {
    if (closed) return;
    completion.untold.for_each([](SendCompletion::Message& each) {
      auto& message = static_cast<active::Outgoing&>(each);
      message.link->withdraw(message);
    });
  }

  void notify_later(active::Notification notification) noexcept override {
    if (closed) return;
    notifications_.push_back(std::move(notification));
    if (!Job::linked()) loop.post(*this);
  }

  bool renew(int rank, std::uint32_t epoch) noexcept {
    active::Link* const lost = link(rank);
    if (lost == nullptr || !lost->is_lost()) return false;
    using What = active::Notification::What;
    std::erase_if(notifications_, [rank](const active::Notification& one) {
      return one.rank == rank && one.what != What::kTold && one.what != What::kRevoked;
    });
    std::unique_ptr<active::Link>& its = links_[static_cast<std::size_t>(rank)];
    if (lost->has_abandoned()) former_.push_back(std::move(its));  // the module may yet tell of its fetches
    its = std::make_unique<active::Link>(*this, rank, epoch);
    return true;
  }

  void close() noexcept {
    if (closed) return;
    closed = true;
    Job::unlink();
    io::Poller::unlink();
    io::BlockGuard::unlink();
    for (const std::unique_ptr<Drive>& each : drives_) each->unwatch();
    notifications_.clear();
    for (const std::unique_ptr<active::Link>& each : links_) each->close();
    for (active::Worker* each : std::exchange(workers, {})) module.close(each);
    for (const std::unique_ptr<active::Link>& each : links_) each->forget();
    former_.clear();
    links_changed.set();
  }

  Task<void> leave(Duration limit, Stop& stop) {
    if (closed) co_return;
    for (int rank = 0; rank < size(); ++rank) {
      if (active::Link* const other = link(rank)) other->leave();
    }
    Stop waiting(stop);
    const Deadline deadline(loop, after(loop.now(), limit), waiting, "a peer did not answer the farewell in time");
    const auto all_left = [this] {
      return closed || std::all_of(links_.begin(), links_.end(),
                                   [](const std::unique_ptr<active::Link>& each) { return each->has_left(); });
    };
    try {
      while (!all_left()) co_await links_changed.wait(waiting);
    } catch (...) {
      if (stop.requested()) throw;
    }
  }

  std::uint64_t refused = 0;

 private:
  // What keeps one worker going.
  struct Drive final : io::Watch {
    Drive(Engine& its_engine, active::Worker* its_worker) : engine(its_engine), worker(its_worker) {}
    void ready(Ready /*what*/) noexcept override { engine.fired(*this); }
    // While a rank spins. Each look costs a system call, so a worker that has had nothing to do for some time is looked at less often, but
    // not the one of short messages.
    bool look() noexcept {
      constexpr unsigned kLooks = 64, kPerLook = 8;
      const bool short_messages = worker == engine.workers[engine.worker_of(TrafficClass::kLatency)];
      if (!short_messages && ++idle_ > kLooks && idle_ % kPerLook != 0) return false;
      return progress();
    }
    bool progress() noexcept {
      const bool any = engine.module.progress(worker);
      if (any) idle_ = 0;
      return any;
    }
    Engine& engine;
    active::Worker* const worker;
    bool has_fired = false;  // the watch, which notifies once

   private:
    unsigned idle_ = 0;  // looks
  };

  bool arrived(active::Worker* at, std::span<const std::byte> text, void* payload, std::size_t bytes,
               bool eager) noexcept {
    active::Frame frame;
    if (text.size() >= sizeof frame) {
      std::memcpy(&frame, text.data(), sizeof frame);
      active::Link* const its = frame.from < links_.size() ? link(static_cast<int>(frame.from)) : nullptr;
      if (frame.version == active::kFrameVersion && frame.token == token && its != nullptr) {
        return frame.epoch == its->epoch() &&
               its->arrived(at, frame, text.subspan(sizeof frame), payload, bytes, eager);
      }
    }
    ++refused;
    return false;
  }

  // A callback may close the port.
  bool progress() noexcept {
    bool any = false;
    for (std::size_t at = 0; at < workers.size(); ++at) any |= drives_[at]->progress();
    return any;
  }

  bool look_at_flags() noexcept override {
    bool any = false;
    for (std::size_t at = 0; at < workers.size(); ++at) any |= drives_[at]->look();
    return any;
  }
  bool looks_at_network() const noexcept override { return true; }

  bool about_to_block() noexcept override {
    bool any = false;
    while (progress()) any = true;
    if (any || Job::linked()) return false;
    for (active::Worker* each : workers) {
      if (!module.arm(each)) return false;
    }
    for (const std::unique_ptr<Drive>& each : drives_) rearm_descriptor(*each);
    return true;
  }
  void woke() noexcept override {}

  void fired(Drive& one) noexcept {
    one.has_fired = true;
    while (progress()) {
    }
  }
  void rearm_descriptor(Drive& one) noexcept {
    if (!one.has_fired) return;
    try {
      real_loop_.rearm(one);
      one.has_fired = false;
    } catch (const Error&) {  // asked again before the next block
    }
  }

  void run() noexcept override {
    if (receiver == nullptr) return;  // begin() posts this again: a loss is told once, and somebody must hear of it
    for (active::Notification& notification : std::exchange(notifications_, {})) {
      if (closed) return;
      active::Link* const its = link(notification.rank);
      switch (notification.what) {
        case active::Notification::What::kSettle: its->settle(); break;
        case active::Notification::What::kTold: notification.completion->sent(std::move(notification.error)); break;
        case active::Notification::What::kRevoked: receiver->on_placed(notification.rank, notification.header); break;
        case active::Notification::What::kRelease: its->ask_held_again(); break;
        case active::Notification::What::kBroken: its->path_broken(); break;
        case active::Notification::What::kLost: its->lose(std::move(notification.error)); break;
      }
    }
  }

  io::RealLoop& real_loop_;
  std::vector<std::unique_ptr<active::Link>> links_;  // by rank; mine stays untouched
  std::vector<std::unique_ptr<active::Link>> former_;
  std::vector<active::Notification> notifications_;
  std::vector<std::unique_ptr<Drive>> drives_;  // of the workers
};

ActivePort::ActivePort(io::RealLoop& loop, const active::Module& module, std::vector<active::Worker*> workers,
                       Settings settings)
    : engine_(std::make_unique<Engine>(loop, module, std::move(workers), std::move(settings))) {}

ActivePort::~ActivePort() = default;

void ActivePort::set_receiver(MessageReceiver& receiver) noexcept { engine_->begin(receiver); }

void ActivePort::post(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces,
                      SendCompletion& completion) noexcept {
  engine_->post(to_rank, header, pieces, completion, false);
}

void ActivePort::post_now(int to_rank, const MessageHeader& header, std::span<const Buffer> pieces,
                          SendCompletion& completion) noexcept {
  engine_->post(to_rank, header, pieces, completion, true);
}

void ActivePort::release(int from_rank) noexcept {
  if (engine_->link(from_rank) == nullptr) return;
  engine_->notify_later({active::Notification::What::kRelease, from_rank, nullptr, nullptr, {}});
}

void ActivePort::withdraw(SendCompletion& completion) noexcept { engine_->withdraw(completion); }

void ActivePort::revoke(int from_rank, const MessageHeader& header) noexcept {
  if (active::Link* link = engine_->link(from_rank)) link->revoke(header);
}

void ActivePort::lose(int rank, std::exception_ptr why) noexcept {
  if (engine_->link(rank) == nullptr) return;
  engine_->notify_later({active::Notification::What::kLost, rank, nullptr, std::move(why), {}});
}

bool ActivePort::renew(int rank, std::uint32_t epoch) noexcept { return engine_->renew(rank, epoch); }

Task<void> ActivePort::leave(Duration limit, Stop& stop) { return engine_->leave(limit, stop); }

std::size_t ActivePort::chunk_bytes() const noexcept {
  return engine_->eager_bytes > 0 ? engine_->eager_bytes : kChunkBytes;
}

void ActivePort::note_latency() noexcept { engine_->latency_use.note(engine_->loop.now()); }

std::string ActivePort::obstacle(int rank) const {
  const std::optional<BrokenPath> path = broken_path(rank);
  return path ? path->reason : std::string();
}

std::optional<BrokenPath> ActivePort::broken_path(int rank) const {
  const active::Link* const link = engine_->link(rank);
  return link == nullptr ? std::nullopt : link->broken_path();
}

void ActivePort::close() noexcept { engine_->close(); }

std::uint64_t ActivePort::refused() const noexcept { return engine_->refused; }

}  // namespace aiacc
