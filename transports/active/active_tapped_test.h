// Two ActivePorts whose frames a test sees before they are sent, and may change. For tests only.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/io/real_clock.h"
#include "base/io/real_loop.h"
#include "transports/active/active_fixture_test.h"
#include "transports/active/active_port.h"
#include "transports/active/frame.h"
#include "transports/active/module_loader.h"

namespace aiacc::active_test {

// One at a time, because a module's functions are told no owner. With two workers a rank has one for control and latency and the other
// for bulk and background.
class TappedPorts {
 public:
  static constexpr int kTwo = 2;

  struct Sent {
    active::Worker* worker;  // of who sends it
    active::FramedMessage message;
    active::Operation* operation;
  };
  // A result: it is not sent, and this is what the sender is told.
  using Tap = std::function<std::optional<active::Began>(Sent&)>;

  // `marks`: of rank 0 alone.
  TappedPorts(const Way& way, int workers, const ActivePortFactory::Marks& marks, Duration gap_limit = {})
      : original_(active::load(*way.library, way.settings)), module_(original_) {
    present_ = this;
    module_.connect = &connect;
    module_.send = &send;
    module_.call_back = &call_back;
    module_.progress = &progress;
    std::vector<ActivePort::Peer> peers(kTwo);
    std::vector<active::Worker*> its_workers[kTwo];
    for (int rank = 0; rank < kTwo; ++rank) {
      ActivePort::Peer& its = peers[static_cast<std::size_t>(rank)];
      its.name = "rank " + std::to_string(rank);
      if (workers == 2) its.worker_of = {0, 0, 1, 1};
      for (int each = 0; each < workers; ++each) {
        its_workers[rank].push_back(active::open_worker(*way.library, module_, way.settings));
        std::vector<std::uint8_t>& address = its.addresses.emplace_back(16 << 10);
        address.resize(module_.address(its_workers[rank].back(), address.data(), address.size()));
      }
      first_worker[rank] = its_workers[rank].front();
    }
    for (int rank = 0; rank < kTwo; ++rank) {
      ActivePort::Settings settings;
      settings.library = way.library->name;
      settings.rank = rank;
      settings.secret = tcp_test::secret_of(1);
      settings.peers = peers;
      settings.gap_limit = gap_limit;
      if (rank == 0) settings.marks = marks;
      ports[rank] = std::make_unique<ActivePort>(loops[rank], module_, its_workers[rank], std::move(settings));
      ports[rank]->set_receiver(receiver[rank]);
    }
  }
  ~TappedPorts() {
    for (const auto& each : ports) each->close();
  }
  // An operation of which the tap said that it is under way ends so.
  void fail(active::Operation& operation, const char* problem) { failing_.emplace_back(&operation, problem); }
  bool run_until(const std::function<bool()>& done) {
    io::RealClock clock;
    const Instant end = after(clock.now(), std::chrono::seconds(60));
    while (!done() && clock.now() < end) {
      for (io::RealLoop& each : loops) each.look();
    }
    return done();
  }

  Tap tap;
  active::Worker* first_worker[kTwo] = {};
  io::RealLoop loops[kTwo];
  message_conformance::Recorder receiver[kTwo];
  std::unique_ptr<ActivePort> ports[kTwo];

 private:
  static active::Endpoint* connect(active::Worker* worker, const std::uint8_t* address, std::size_t bytes, void* peer,
                                   char* problem, std::size_t room) noexcept {
    active::Endpoint* const made = present_->original_.connect(worker, address, bytes, peer, problem, room);
    present_->worker_of_[made] = worker;
    return made;
  }
  static active::Began send(active::Endpoint* endpoint, const void* header, std::size_t header_bytes,
                            const active::Extent* extents, std::size_t count, bool rendezvous,
                            active::Operation& operation, const char** problem) noexcept {
    Sent sent{present_->worker_of_[endpoint], {}, &operation};
    std::memcpy(&sent.message, header, std::min(header_bytes, sizeof sent.message));
    const active::FramedMessage before = sent.message;
    if (present_->tap) {
      if (const std::optional<active::Began> instead = present_->tap(sent)) return *instead;
    }
    if (std::memcmp(&before, &sent.message, sizeof before) != 0)
      header = &present_->changed_.emplace_back(sent.message);
    return present_->original_.send(endpoint, header, header_bytes, extents, count, rendezvous, operation, problem);
  }
  static void call_back(active::Worker* worker, const active::Callbacks& callbacks) noexcept {
    present_->callbacks_of_[worker] = callbacks;
    present_->original_.call_back(worker, callbacks);
  }
  static bool progress(active::Worker* worker) noexcept {
    const active::Callbacks& callbacks = present_->callbacks_of_[worker];
    if (worker == present_->first_worker[1]) {
      for (const auto& [operation, problem] : std::exchange(present_->failing_, {})) {
        callbacks.sent(callbacks.owner, *operation, problem);
      }
    }
    return present_->original_.progress(worker);
  }

  static inline TappedPorts* present_ = nullptr;
  const active::Module& original_;
  active::Module module_;
  std::map<active::Endpoint*, active::Worker*> worker_of_;
  std::map<active::Worker*, active::Callbacks> callbacks_of_;
  std::vector<std::pair<active::Operation*, const char*>> failing_;  // of rank 1
  std::deque<active::FramedMessage> changed_;                        // while they are sent
};

}  // namespace aiacc::active_test
