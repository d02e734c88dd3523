// Shared: what the parts of a ActivePort have in common.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "transports/active/active_port.h"
#include "transports/active/frame.h"
#include "transports/active/module_api.h"
#include "transports/qos/latency_use.h"

namespace aiacc::active {

// What is done later, because the port makes no callback from inside a call, and closes no endpoint from inside one of the module's.
struct Notification {
  enum class What : std::uint8_t { kSettle, kTold, kRevoked, kRelease, kBroken, kLost };
  What what;
  int rank = kNoPeer;
  SendCompletion* completion = nullptr;  // of kTold
  std::exception_ptr error;              // of kTold and kLost
  MessageHeader header;                  // of kRevoked
};

class Shared {
 public:
  Shared(Loop& its_loop, const Module& its_module, std::vector<Worker*> its_workers, ActivePort::Settings its_settings)
      : loop(its_loop),
        module(its_module),
        workers(std::move(its_workers)),
        settings(std::move(its_settings)),
        eager_bytes(module.eager_bytes(workers.front())),
        links_changed(its_loop) {}
  virtual void notify_later(Notification notification) noexcept = 0;

  const ActivePort::Peer& peer(int rank) const noexcept { return settings.peers[static_cast<std::size_t>(rank)]; }
  std::size_t worker_of(TrafficClass traffic) const noexcept {
    return peer(settings.rank).worker_of[static_cast<std::size_t>(traffic)];
  }
  const std::string& library() const noexcept { return settings.library; }
  const std::string& name(int rank) const noexcept { return peer(rank).name; }

  Loop& loop;
  const Module& module;
  std::vector<Worker*> workers;
  const ActivePort::Settings settings;
  const std::size_t eager_bytes;  // of the longest payload that is sent without a rendezvous though it is lent
  bool latency_in_use() noexcept {
    return latency_use.in_use([this] { return loop.now(); });
  }

  Token token{};
  MessageReceiver* receiver = nullptr;
  bool closed = false;
  LatencyUse latency_use;
  Event links_changed;  // for leave(): set when a link may have nothing more to send

 protected:
  ~Shared() = default;
};

}  // namespace aiacc::active
