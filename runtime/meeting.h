// Meeting: the two ends of base/wire/rendezvous_messages.h. Rank 0 is the host of a job that no agent brings together
// (meeting_host.h), every other rank its guest (meeting_guest.h). Afterwards rank 0 stays the place where deaths are told.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/io/net.h"
#include "base/io/processes.h"
#include "base/task/task.h"
#include "base/time.h"
#include "base/wire/rendezvous_messages.h"
#include "base/wire/secret.h"
#include "runtime/bootstrap.h"

namespace aiacc {

// Of connections to rank 0: there is no job yet whose number they could carry.
inline constexpr std::uint64_t kMeetingJob = 0;

// How long it may take until the others have heard what is said at the end.
inline constexpr Duration kLastWords = std::chrono::seconds(1);

// The sentence of a deadline; `attendance` says who is there.
std::string too_late(Duration limit, const std::string& attendance);

// Throws kProtocol if what the `size` ranks say cannot be, each the lowest rank of its host.
void check_firsts(const std::vector<std::int32_t>& firsts, int size);

class Meeting {
 public:
  virtual ~Meeting() = default;

  // Returns when all ranks of the job have come. When `stop` ends it for lack of time, the sentence says who came and who
  // did not.
  virtual Task<wire::Roster> gather(Stop& stop) = 0;
  // Tells all others the lowest rank of mine's host, and returns what each rank told, which fits together.
  virtual Task<std::vector<std::int32_t>> settle(std::int32_t first, Stop& stop) = 0;

  // After settle(), with what it and gather() returned: hears from the system of this host of the ends of processes on it.
  // `processes` outlives the meeting.
  virtual void watch_neighbours(io::Processes& processes, const wire::Roster& roster,
                                const std::vector<std::int32_t>& firsts) = 0;

  // From now on `observer` hears of deaths.
  virtual void observe(BirthObserver& observer) noexcept = 0;
  virtual Task<void> leave(Stop& stop) = 0;

  // What a user may want to know although the job came together; whole sentences.
  virtual std::vector<std::string> remarks() const = 0;
};

// Where a job meets.
class MeetingPlace {
 public:
  struct Found {
    std::vector<io::Address> addresses;
    wire::Secret secret;
  };

  virtual ~MeetingPlace() = default;
  // Rank 0: takes connections there from now on. Throws with the sentence.
  virtual std::unique_ptr<io::Listener> open(io::Net& net) = 0;
  // Rank 0, after open().
  virtual wire::Secret secret() const = 0;
  // Others: where rank 0 may be, asked again before each attempt. May block the thread up to `limit`. Throws kPeerFailed if
  // that is not known yet.
  virtual Found find(Duration limit) = 0;
  // For sentences: "AIACC_RENDEZVOUS=node-7:4242".
  virtual std::string name() const = 0;
};

}  // namespace aiacc
