// The end of every rank but 0 in a meeting: calls rank 0 until it answers with proof, and then listens to it; where the
// connection breaks it comes back and hears what it has missed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/io/clock.h"
#include "base/task/scope.h"
#include "base/wire/agent_messages.h"
#include "base/wire/secure_channel.h"
#include "runtime/losses.h"
#include "runtime/meeting.h"
#include "runtime/neighbour_watch.h"
#include "runtime/way_back.h"

namespace aiacc {

class MeetingGuest final : public Meeting, private NeighbourWatch::Owner, private Root::Owner {
 public:
  // `limit` is how long the job has to come together. `net`, `place` and `entropy` outlive the meeting.
  MeetingGuest(Loop& loop, io::Net& net, MeetingPlace& place, io::Entropy& entropy, wire::Arrive me, Duration limit);
  ~MeetingGuest() override;

  Task<wire::Roster> gather(Stop& stop) override;
  Task<std::vector<std::int32_t>> settle(std::int32_t first, Stop& stop) override;
  void watch_neighbours(io::Processes& processes, const wire::Roster& roster,
                        const std::vector<std::int32_t>& firsts) override;
  void observe(BirthObserver& observer) noexcept override;
  Task<void> leave(Stop& stop) override;
  std::vector<std::string> remarks() const override { return {}; }

 private:
  enum class Attempt : std::uint8_t { kRoster, kRefused, kFailed };

  Task<wire::Roster> call_until_answered(Stop& stop);
  Task<Attempt> attempt(io::Address address, wire::Secret secret, wire::Roster* roster, Stop& stop);
  Task<void> introduce(MeetingCall& call, io::Address address, Stop& stop);
  Task<wire::Frame> next(Stop& stop);
  static std::string host_address(const io::Address& reached, const wire::Roster& roster);
  void prefer(const io::Address& reached, wire::Roster& roster) const;
  void give_up_on_a_steady_no(bool refused);
  Task<std::optional<wire::Frame>> hear(Stop& stop);
  Task<void> come_back(std::string broken, std::string_view when, Stop& stop);
  Task<void> say_leave(Stop& stop);
  std::string attendance() const;
  Task<void> listen();
  void neighbour_ended(int rank, const std::string& sentence) override;
  Task<void> report();
  void root_ended(Root& root, std::exception_ptr error) noexcept override;

  Loop& loop_;
  io::Net& net_;
  MeetingPlace& place_;
  io::Entropy& entropy_;
  wire::Arrive me_;
  Duration limit_;
  Instant end_;  // of the time to come together
  Duration patience_ = wire::kHandshakeLimit;
  std::optional<Instant> no_since_;
  std::string host_name_;  // of rank 0
  std::string reason_;     // why the last attempt failed
  std::string last_word_;  // of rank 0, while it waits for others
  unsigned attempts_ = 0;
  std::optional<WayBack> way_back_;  // once this rank has its list
  std::uint32_t heard_ = 0;          // of what rank 0 says to all
  bool leaving_ = false;
  bool over_ = false;                             // rank 0 has left or is lost
  Event ended_;                                   // the listener
  std::shared_ptr<wire::SecureChannel> channel_;  // also of who sends on it
  Losses losses_;
  std::vector<wire::RankLost> ended_neighbours_;  // for rank 0 to hear
  std::size_t reported_ = 0;                      // of them, on this connection
  Event to_report_;
  Stop stop_;
  NeighbourWatch neighbours_;
  std::optional<Root> reporter_;
  std::optional<Root> listener_;  // last: its frames refer to what stands above
};

}  // namespace aiacc
