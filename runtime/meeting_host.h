// Rank 0's end of a meeting: gathers all ranks, tells everybody of everybody, and afterwards of deaths.
#pragma once

#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/io/clock.h"
#include "base/task/scope.h"
#include "base/wire/agent_messages.h"
#include "base/wire/reception.h"
#include "base/wire/secure_channel.h"
#include "runtime/attendance.h"
#include "runtime/meeting.h"

namespace aiacc {

class MeetingHost final : public Meeting, private wire::Reception::Owner, private Root::Owner {
 public:
  // `me` is what a guest would say, `place` names where they meet, `limit` is how long they have. The entropy outlives the
  // meeting.
  MeetingHost(Loop& loop, std::unique_ptr<io::Listener> listener, const wire::Secret& secret, io::Entropy& entropy,
              const wire::Arrive& me, std::string place, Duration limit);
  ~MeetingHost() override;

  Task<wire::Roster> gather(Stop& stop) override;
  Task<std::vector<std::int32_t>> settle(std::int32_t first, Stop& stop) override;
  void observe(BirthObserver& observer) noexcept override;
  Task<void> leave(Stop& stop) override;
  std::vector<std::string> remarks() const override;

 private:
  struct Guest {
    Guest(Loop& loop, std::unique_ptr<io::Stream> stream, const wire::SessionKeys& keys, std::string address)
        : channel(loop, std::move(stream), keys.to_dialer, keys.to_listener), from(std::move(address)) {}
    wire::SecureChannel channel;
    std::string from;  // its address as seen from here
    wire::Arrive said;
    bool came = false;  // and has its place
    bool left = false;  // in order
    Stop stop;
    std::optional<Root> reader;  // last: its frames refer to what stands above
  };
  struct Saying {
    std::optional<Root> root;
  };

  Task<void> greet(std::unique_ptr<io::Stream> stream, bool* stranger, Stop& stop) override;
  void turned_away() noexcept override { ++turned_away_; }
  void root_ended(Root& root, std::exception_ptr error) noexcept override;

  Task<void> serve(Guest* guest);
  void admit(Guest& guest, const wire::Frame& frame);
  void refuse(Guest& guest, const Error& why);
  void refuse_all(const Error& why);
  void welcome_back(Guest& guest);
  void replace(const Guest& by);
  void gone(const Guest& guest, const std::string& how);
  void give_up_waiting();
  void lose(int rank, const std::string& sentence);
  template <wire::Message T>
  void say(const std::shared_ptr<Guest>& guest, const T& message);
  template <wire::Message T>
  void say_all(const T& message);
  template <wire::Message T>
  static Task<void> say_one(std::shared_ptr<Guest> guest, T message);
  Task<void> wait_for_sayings(Duration limit);
  Task<bool> wait_a_second(Stop& stop);

  std::string news() const;
  std::uint64_t strangers() const noexcept { return turned_away_ - std::min(ours_, turned_away_); }
  wire::Roster make_roster();

  Loop& loop_;
  wire::Secret secret_;
  io::Entropy& entropy_;
  Attendance attendance_;
  std::string place_;
  Duration limit_;
  Event changed_;
  Event said_;
  std::uint64_t turned_away_ = 0;
  std::uint64_t ours_ = 0;  // of them, as those say who came again
  std::vector<std::string> remarks_;
  std::optional<Error> failed_;         // why there will be no job
  std::optional<wire::Roster> roster_;  // once all have come
  struct Away {
    Instant until;
    std::string sentence;
  };
  std::map<int, Away> away_;  // by rank: who lost its connection since then
  bool settled_ = false;
  bool leaving_ = false;
  std::vector<std::optional<std::int32_t>> firsts_;
  BirthObserver* observer_ = nullptr;
  std::vector<wire::RankLost> unheard_;  // losses before there was an observer
  std::list<std::shared_ptr<Guest>> guests_;
  std::list<Saying> sayings_;
  std::optional<wire::Reception> reception_;
};

}  // namespace aiacc
