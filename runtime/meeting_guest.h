// The end of every rank but 0 in a meeting: calls rank 0 until it answers with proof, and then listens to it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/io/clock.h"
#include "base/task/scope.h"
#include "base/wire/agent_messages.h"
#include "base/wire/secure_channel.h"
#include "runtime/meeting.h"

namespace aiacc {

class MeetingGuest final : public Meeting, private Root::Owner {
 public:
  // `limit` is how long the job has to come together. `net`, `place` and `entropy` outlive the meeting.
  MeetingGuest(Loop& loop, io::Net& net, MeetingPlace& place, io::Entropy& entropy, wire::Arrive me, Duration limit);
  ~MeetingGuest() override;

  Task<wire::Roster> gather(Stop& stop) override;
  Task<std::vector<std::int32_t>> settle(std::int32_t first, Stop& stop) override;
  void observe(BirthObserver& observer) noexcept override;
  Task<void> leave(Stop& stop) override;
  std::vector<std::string> remarks() const override { return {}; }

 private:
  enum class Attempt : std::uint8_t { kRoster, kRefused, kFailed };

  Task<wire::Roster> call_until_answered(Stop& stop);
  Task<Attempt> attempt(io::Address address, wire::Secret secret, wire::Roster* roster, Stop& stop);
  Task<std::unique_ptr<wire::SecureChannel>> connect(io::Address address, const wire::Secret& secret, Stop& stop);
  Task<wire::Frame> next(Stop& stop);
  void prefer(const io::Address& reached, wire::Roster& roster) const;
  void give_up_on_a_steady_no(bool refused);
  Task<void> come_again(std::string broken, Stop& stop);
  std::string attendance() const;
  Task<void> listen();
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
  std::uint64_t job_ = 0;  // as the roster says
  std::string reason_;     // why the last attempt failed
  std::string last_word_;  // of rank 0, while it waits for others
  unsigned attempts_ = 0;
  bool proving_ = false;  // the running attempt has a connection, and both ends have not proved themselves yet
  bool refused_ = false;  // the running attempt was answered, by somebody who does not know the secret
  bool over_ = false;     // rank 0 or this one has left
  std::unique_ptr<wire::SecureChannel> channel_;
  BirthObserver* observer_ = nullptr;
  Stop stop_;
  std::optional<Root> listener_;  // last: its frames refer to what stands above
};

}  // namespace aiacc
