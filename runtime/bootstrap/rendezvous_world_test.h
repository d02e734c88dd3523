// Ranks with a rendezvous endpoint of their own, on one real loop. For tests only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/io/bound_port.h"
#include "runtime/bootstrap/bootstrap_rendezvous.h"
#include "runtime/bootstrap/bootstrap_world_test.h"
#include "runtime/rendezvous/rendezvous_endpoint.h"

namespace aiacc {

class RendezvousWorld : public RealWorld {
 public:
  // `share`: ranks discover their local peers; otherwise each counts as a separate host.
  explicit RendezvousWorld(int ranks, bool share = true) {
    for (int rank = 0; rank < ranks; ++rank) add(settings(rank, ranks, share));
  }
  int size() const override { return static_cast<int>(providers_.size()); }
  Bootstrap& provider(int rank) override { return *providers_[static_cast<std::size_t>(rank)]; }
  // Rank 0's death ends the job.
  bool kill(int rank) override {
    providers_[static_cast<std::size_t>(rank)].reset();
    return true;
  }

  static RendezvousBootstrap::Settings settings(int rank, int size, bool share = true) {
    RendezvousBootstrap::Settings settings;
    settings.rank = rank;
    settings.size = size;
    settings.version = "1.2.3";
    settings.host_name = "here";
    settings.limit = std::chrono::seconds(30);
    settings.slice_bytes = 16 << 20;
    settings.share_memory = share;
    return settings;
  }
  static wire::Secret secret(char salt = 's') { return wire::Secret::from(std::string(wire::Secret::kBytes, salt)); }
  void add(const RendezvousBootstrap::Settings& settings, const wire::Secret& secret = RendezvousWorld::secret()) {
    auto endpoint = std::make_unique<AddressEndpoint>(io::HostPort{"127.0.0.1", port_.number()}, secret);
    providers_.push_back(std::make_unique<RendezvousBootstrap>(loop_, std::move(endpoint), settings));
  }
  std::uint16_t port() const { return port_.number(); }

 private:
  io::BoundPort port_;
  std::vector<std::unique_ptr<RendezvousBootstrap>> providers_;
};

}  // namespace aiacc
