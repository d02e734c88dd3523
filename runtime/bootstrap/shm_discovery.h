// ShmDomainDiscovery: finds out which ranks of a job without an agent share a host, and lets them share memory. Each
// rank has a local socket with a random abstract name (base/io/same_host.h). The first rank of a host is the lowest rank
// whose socket can be reached, whose process belongs to the same user, and which knows the job's secret. It creates the
// segment and passes it over that socket.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/io/real_clock.h"
#include "base/io/real_net.h"
#include "base/wire/acceptor.h"
#include "base/wire/rendezvous_messages.h"
#include "transports/host/host_domain.h"

namespace aiacc {

class ShmDomainDiscovery final : private wire::Acceptor::Owner {
 public:
  // `slice_bytes` is RuntimeConfig's.
  ShmDomainDiscovery(io::RealLoop& loop, std::uint64_t slice_bytes);
  ~ShmDomainDiscovery();

  // The name of this rank's socket, for Arrive::local_name.
  const std::string& name() const noexcept { return name_; }

  // Finds the first rank of this host. From now on other ranks may connect to this one.
  Task<std::int32_t> find_first(const wire::Roster& roster, std::int32_t rank, Stop& stop);
  // Returns the memory of this host's ranks, null if this rank is alone. `firsts` is indexed by rank and was checked.
  Task<std::unique_ptr<HostDomain>> share(const std::vector<std::int32_t>& firsts, Stop& stop);

 private:
  enum class DialResult : std::uint8_t { kReached, kNotHere, kBroken };

  Task<void> greet(std::unique_ptr<io::Stream> stream, wire::Acceptor::Newcomer& newcomer, Stop& stop) override;
  void peer_refused() noexcept override {}
  Task<DialResult> dial(std::int32_t other, std::string name, Stop& stop);
  Task<std::unique_ptr<HostDomain>> send_segment(const std::vector<std::int32_t>& others, Stop& stop);
  Task<std::unique_ptr<HostDomain>> receive_segment(int local_rank, int count, Stop& stop);

  io::RealLoop& loop_;
  std::uint64_t slice_bytes_;
  io::RealNet net_;
  io::RealEntropy entropy_;
  std::string name_;
  std::uint32_t user_;
  std::int32_t rank_ = 0;
  std::int32_t size_ = 0;
  std::uint64_t job_ = 0;
  wire::Secret secret_;
  std::unique_ptr<io::Stream> to_first_;
  Event member_connected_;
  std::map<std::int32_t, std::unique_ptr<io::Stream>> members_;  // by rank: ranks that found this one as their first
  std::optional<wire::Acceptor> acceptor_;
};

}  // namespace aiacc
