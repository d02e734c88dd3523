// Small worlds of ActivePorts in this process, over each library and way that tests use. For tests only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/io/real_clock.h"
#include "base/io/real_loop.h"
#include "transports/active/active_port_factory.h"
#include "transports/message_conformance.h"
#include "transports/ofi/ofi_library.h"
#include "transports/tcp/tcp_fixture_test.h"
#include "transports/ucx/ucx_library.h"

namespace aiacc::active_test {

struct Way {
  const char* name;
  const active::Library* library;
  std::vector<std::string> settings;
  // That a process is gone is told by another source, as agents do, because its kernel does not tell it.
  bool told;
};

inline const Way kUcxOverTcp{"UcxOverTcp", &ucx::kLibrary, {"UCX_TLS=tcp"}, false};
inline const Way kUcxOverSharedMemory{
    "UcxOverSharedMemory", &ucx::kLibrary, {"UCX_TLS=sm", "UCX_MM_ERROR_HANDLING=y"}, true};

inline const Way kOfiOverTcp{"OfiOverTcp", &ofi::kLibrary, {"OFI_PROVIDER=tcp;ofi_rxm", "FI_TCP_IFACE=lo"}, true};
// Without reads of the other one's memory.
inline const Way kOfiOverTcpInChunks{"OfiOverTcpInChunks",
                                     &ofi::kLibrary,
                                     {"OFI_PROVIDER=tcp;ofi_rxm", "FI_TCP_IFACE=lo", "FI_AV_REMOVE_CLEANUP=0"},
                                     true};
inline const Way kOfiOverSharedMemory{"OfiOverSharedMemory", &ofi::kLibrary, {"OFI_PROVIDER=shm"}, true};

// Which the tests of the port run over. UCX over shared memory runs the conformance suite alone.
inline const std::vector<const Way*> kWays = {&kUcxOverTcp, &kOfiOverTcp, &kOfiOverTcpInChunks, &kOfiOverSharedMemory};

// Why there can be no ports in this way; "" if there can be.
inline std::string obstacle(const active::Library& library, const std::vector<std::string>& settings) {
  try {
    io::RealLoop loop;
    const ActivePortFactory factory(loop, library, settings);
    return "";
  } catch (const Error& error) {
    return error.message();
  }
}

inline const std::string& obstacle(const Way& way) {
  static std::map<const Way*, std::string> known;
  const auto [at, is_new] = known.try_emplace(&way);
  if (is_new) at->second = obstacle(*way.library, way.settings);
  return at->second;
}

class Ports {
 public:
  // `others`: to whose ranks these send, as strangers. `marks`: of rank 0 alone.
  explicit Ports(const Way& way, std::uint64_t job = 7, const Ports* others = nullptr,
                 const ActivePortFactory::Marks& marks = {})
      : told_(way.told) {
    constexpr int ranks = message_conformance::kRanks;
    std::vector<NetworkPorts> networks(static_cast<std::size_t>(ranks));
    for (NetworkPorts& each : networks) {
      loops.push_back(std::make_unique<io::RealLoop>());
      const bool first = loops.size() == 1;
      each.add(std::make_unique<ActivePortFactory>(*loops.back(), *way.library, way.settings,
                                                   first ? marks : ActivePortFactory::Marks{}));
      addresses.push_back(each.addresses());
    }
    for (int rank = 0; rank < ranks; ++rank) {
      PortWorld world;
      world.rank = rank;
      world.job = job;
      world.secret = tcp_test::secret_of(1);
      for (int peer = 0; peer < ranks; ++peer) world.peers.push_back({"rank " + std::to_string(peer), {}, {}});
      ports.push_back(networks[static_cast<std::size_t>(rank)].open(std::move(world),
                                                                    others == nullptr ? addresses : others->addresses));
    }
  }
  MessagePort& port(int rank) { return *ports[static_cast<std::size_t>(rank)]; }
  bool run_until(const std::function<bool()>& done) {
    const Instant end = after(clock.now(), std::chrono::seconds(60));
    while (!done() && clock.now() < end) {
      for (const auto& loop : loops) loop->look();
    }
    return done();
  }
  void lose(int rank) {
    ports[static_cast<std::size_t>(rank)] = std::make_unique<tcp_test::NoPort>();
    if (!told_) return;
    for (const auto& each : ports) {
      each->lose(rank, std::make_exception_ptr(Error(Code::kPeerFailed, "it was killed", rank)));
    }
  }

  io::RealClock clock;
  std::vector<std::unique_ptr<io::RealLoop>> loops;
  std::vector<std::unique_ptr<MessagePort>> ports;
  std::vector<wire::RankPorts> addresses;

 private:
  bool told_;
};

}  // namespace aiacc::active_test
