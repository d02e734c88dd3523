#include "runtime/bootstrap/bootstrap_local.h"

#include <array>
#include <cstring>

#include "base/io/real_clock.h"
#include "transports/host/memfd_domain.h"

namespace aiacc {

std::shared_ptr<LocalWorld> LocalWorld::make(int ranks, std::uint64_t slice_bytes, std::string host_name) {
  std::uint64_t random = 0;
  std::array<std::byte, sizeof random> bytes;
  io::RealEntropy().fill(bytes);
  std::memcpy(&random, bytes.data(), sizeof random);

  auto world = std::make_shared<LocalWorld>();
  std::vector<Member> members;
  for (int rank = 0; rank < ranks; ++rank) members.push_back({static_cast<std::uint32_t>(rank), 0, 0});
  world->view = std::make_shared<const View>(random, 0, 0, 0, std::move(members));
  const HostSegment segment = HostSegment::create(ranks, slice_bytes, random);
  world->segment = SegmentMapping::map(segment.descriptor(), random, ranks);
  world->host_name = std::move(host_name);
  return world;
}

Task<BootstrapResult> LocalBootstrap::join(Stop& stop) {
  stop.throw_if_requested();
  BootstrapResult bootstrapped;
  bootstrapped.rank = rank_;
  bootstrapped.world = world_->view;
  bootstrapped.host = std::make_unique<MemfdDomain>(world_->segment, rank_, loop_);
  bootstrapped.job_name = "local";
  bootstrapped.host_name = world_->host_name;
  co_return bootstrapped;
}

Task<void> LocalBootstrap::leave(Instant, Stop&) { co_return; }

}  // namespace aiacc
