// The provider of ranks that were started by something else and have a place to meet (runtime/meeting_place.h): rank 0 gathers
// them, ranks of one host find each other and share memory, and the others are reached over TCP. Rank 0 then tells of deaths,
// as long as it lives itself.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/io/real_clock.h"
#include "base/io/real_loop.h"
#include "base/io/real_net.h"
#include "base/io/real_processes.h"
#include "runtime/bootstrap.h"
#include "runtime/meeting.h"
#include "runtime/neighbourhood.h"

namespace aiacc {

class RendezvousBootstrap final : public Bootstrap {
 public:
  struct Settings {
    int rank = 0;
    int size = 1;
    std::string job;      // as the user calls it
    std::string version;  // of the library
    std::string host_name;
    std::vector<std::string> addresses;  // of this host
    Duration limit{};                    // to come together
    io::TcpSettings tcp;
    std::uint64_t slice_bytes = 0;
    bool share_memory = true;  // false: with nobody, for tests
  };
  RendezvousBootstrap(io::RealLoop& loop, std::unique_ptr<MeetingPlace> place, Settings settings);
  ~RendezvousBootstrap() override;

  Task<Birth> join(Stop& stop) override;
  void observe(BirthObserver& observer) noexcept override { meeting_->observe(observer); }
  Task<void> leave(Stop& stop) override { return meeting_->leave(stop); }

 private:
  wire::Arrive introduction() const;
  Birth birth_of(const wire::Roster& roster, const std::vector<std::int32_t>& firsts, std::unique_ptr<HostDomain> host);

  io::RealLoop& loop_;
  io::RealNet net_;
  io::RealEntropy entropy_;
  io::RealProcesses processes_;
  std::unique_ptr<MeetingPlace> place_;
  Settings settings_;
  std::unique_ptr<io::Listener> data_listener_;  // until the birth
  std::unique_ptr<Neighbourhood> neighbourhood_;
  std::unique_ptr<Meeting> meeting_;
};

}  // namespace aiacc
