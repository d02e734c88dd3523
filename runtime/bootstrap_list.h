// The provider of ranks that were told everything beforehand: who they are, where all others listen, and the job's secret.
// There is nobody to meet and nobody who tells of deaths: what breaks is a connection.
#pragma once

#include <memory>
#include <string>

#include "base/io/real_clock.h"
#include "base/io/real_net.h"
#include "runtime/bootstrap.h"
#include "runtime/data_port.h"
#include "transports/host/segment.h"

namespace aiacc {

struct ListedRank {
  int rank = 0;
  ViewPtr world;
  JobPlaces places;
  std::string job_name;
  std::unique_ptr<io::Listener> listener;   // on the port that the places say
  std::shared_ptr<SegmentMapping> segment;  // of the ranks on this host; null if this one is alone here
};

class ListBootstrap final : public Bootstrap {
 public:
  // `me.listener` is of `loop`.
  ListBootstrap(io::RealLoop& loop, ListedRank me) : loop_(loop), net_(loop), me_(std::move(me)) {}

  Task<Birth> join(Stop& stop) override;
  void observe(BirthObserver&) noexcept override {}
  Task<void> leave(Stop& stop) override;

 private:
  io::RealLoop& loop_;
  io::RealNet net_;
  io::RealEntropy entropy_;
  ListedRank me_;
};

}  // namespace aiacc
