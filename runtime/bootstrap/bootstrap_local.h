// LocalBootstrap: the provider for threads as ranks: a world inside one process, on one segment that all its contexts
// share. Its ranks live and die together, so it reports no deaths.
#pragma once

#include <memory>

#include "base/io/real_loop.h"
#include "runtime/bootstrap/bootstrap.h"
#include "transports/host/segment.h"

namespace aiacc {

// State that the ranks of one local world share.
struct LocalWorld {
  // Throws kOutOfMemory if the host has not enough memory.
  static std::shared_ptr<LocalWorld> make(int ranks, std::uint64_t slice_bytes, std::string host_name);

  ViewPtr view;
  std::shared_ptr<SegmentMapping> segment;
  std::string host_name;
};

class LocalBootstrap final : public Bootstrap {
 public:
  LocalBootstrap(io::RealLoop& loop, std::shared_ptr<LocalWorld> world, int rank)
      : loop_(loop), world_(std::move(world)), rank_(rank) {}
  Task<BootstrapResult> join(Stop& stop) override;
  void observe(BootstrapObserver&) noexcept override {}
  Task<void> leave(Instant end, Stop& stop) override;

 private:
  io::RealLoop& loop_;
  std::shared_ptr<LocalWorld> world_;
  int rank_;
};

}  // namespace aiacc
