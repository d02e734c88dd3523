// Neighbourhood: which ranks of a job without an agent are on one host, proved by the memory that they then share. Each rank
// has a local socket with a random name of the abstract name space; the lowest rank whose socket a rank reaches, whose process
// belongs to the same user, and which knows the job's secret, is the first of its host. It makes the segment and passes it over
// that socket. A name of a host is never believed.
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
#include "base/wire/reception.h"
#include "base/wire/rendezvous_messages.h"
#include "transports/host/host_domain.h"

namespace aiacc {

class Neighbourhood final : private wire::Reception::Owner {
 public:
  // `slice_bytes` is RuntimeConfig's.
  Neighbourhood(io::RealLoop& loop, std::uint64_t slice_bytes);
  ~Neighbourhood();

  // For Arrive::local_name.
  const std::string& name() const noexcept { return name_; }

  // The first rank of my host. Others may call on me from now on.
  Task<std::int32_t> find_first(const wire::Roster& roster, std::int32_t rank, Stop& stop);
  // The memory of my host's ranks, null if I am alone. `firsts` by rank, checked.
  Task<std::unique_ptr<HostDomain>> share(const std::vector<std::int32_t>& firsts, Stop& stop);

 private:
  enum class Called : std::uint8_t { kYes, kNotHere, kBroken };

  Task<void> greet(std::unique_ptr<io::Stream> stream, bool* stranger, Stop& stop) override;
  void turned_away() noexcept override {}
  Task<Called> call(std::int32_t other, std::string name, Stop& stop);
  Task<std::unique_ptr<HostDomain>> give(const std::vector<std::int32_t>& others, Stop& stop);
  Task<std::unique_ptr<HostDomain>> take(int place, int count, Stop& stop);

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
  Event came_;
  std::map<std::int32_t, std::unique_ptr<io::Stream>> visitors_;  // by rank, who found me as the first
  std::optional<wire::Reception> reception_;
};

}  // namespace aiacc
