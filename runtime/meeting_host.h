// Rank 0's end of a meeting: gathers all ranks, tells everybody of everybody, and afterwards of deaths. What is said to all has
// one order and is kept, so that who lost its connection comes back and hears the rest (docs/wire-protocol.md, "Coming back").
// meeting_host.cc is until all have met, meeting_host_life.cc what follows.
#pragma once

#include <algorithm>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/io/clock.h"
#include "base/task/scope.h"
#include "base/wire/agent_messages.h"
#include "base/wire/reception.h"
#include "base/wire/secure_channel.h"
#include "runtime/attendance.h"
#include "runtime/losses.h"
#include "runtime/meeting.h"
#include "runtime/neighbour_watch.h"
#include "runtime/return_door.h"

namespace aiacc {

class MeetingHost final : public Meeting,
                          private wire::Reception::Owner,
                          private ReturnDoor::Owner,
                          private NeighbourWatch::Owner,
                          private Root::Owner {
 public:
  struct Listeners {
    std::unique_ptr<io::Listener> place;
    std::unique_ptr<io::Listener> back;  // on a free port, for those who come back
  };
  // `me` is what a guest would say, `place` names where they meet, `limit` is how long they have. Net and entropy outlive the
  // meeting.
  MeetingHost(Loop& loop, io::Net& net, Listeners listeners, const wire::Secret& secret, io::Entropy& entropy,
              const wire::Arrive& me, std::string place, Duration limit);
  ~MeetingHost() override;

  Task<wire::Roster> gather(Stop& stop) override;
  Task<std::vector<std::int32_t>> settle(std::int32_t first, Stop& stop) override;
  void watch_neighbours(io::Processes& processes, const wire::Roster& roster,
                        const std::vector<std::int32_t>& firsts) override;
  void observe(BirthObserver& observer) noexcept override { losses_.observe(observer); }
  Task<void> leave(Stop& stop) override;
  std::vector<std::string> remarks() const override;

 private:
  struct Guest {
    Guest(Loop& loop, std::unique_ptr<io::Stream> stream, const wire::SessionKeys& keys, std::string address)
        : channel(loop, std::move(stream), keys.to_dialer, keys.to_listener), from(std::move(address)) {}
    wire::SecureChannel channel;
    std::string from;  // its address as seen from here
    wire::Arrive said;
    bool back = false;     // this connection takes the place of a broken one
    bool came = false;     // and has its place
    bool left = false;     // in order
    std::size_t told = 0;  // of the words to all
    bool telling = false;
    Stop stop;
    std::optional<Root> reader;  // last: its frames refer to what stands above
  };
  struct Saying {
    std::optional<Root> root;
  };
  // Who lost its connection and may come back.
  struct Away {
    Away(int its_rank, std::string why) : rank(its_rank), sentence(std::move(why)) {}
    int rank;
    std::string sentence;
    Instant until{};            // before the last word
    Stop stop;                  // of the watch; requested: it is back
    std::optional<Root> watch;  // none where its process is seen
  };
  using Word = std::variant<wire::Roster, wire::ReturnTo, wire::Settled, wire::RankLost, wire::Gone>;

  Task<void> greet(std::unique_ptr<io::Stream> stream, bool* stranger, Stop& stop) override;
  void turned_away() noexcept override { ++turned_away_; }
  bool may_return(int rank) const noexcept override { return !out_[static_cast<std::size_t>(rank)]; }
  void returned(int rank, std::unique_ptr<io::Stream> stream, const wire::SessionKeys& keys) override;
  void root_ended(Root& root, std::exception_ptr error) noexcept override;

  void take_in(std::shared_ptr<Guest> guest);
  Task<void> serve(Guest* guest);
  void take_back(Guest& guest, const wire::Frame& frame);
  void admit(Guest& guest, const wire::Frame& frame);
  void refuse(Guest& guest, const Error& why);
  void refuse_all(const Error& why);
  void has_come(Guest& guest);
  void replace(const Guest& by);
  void gone(const Guest& guest, const std::string& how);
  void give_up_waiting();
  void look_after(int rank, const std::string& sentence);
  Task<void> watch(Away* away, io::Address address);
  bool watch_ended(const Root& root, bool found);
  void no_longer_away(int rank);
  bool nobody_away() const noexcept;
  void neighbour_ended(int rank, const std::string& sentence) override;
  void heard_of_end(const Guest& from, const wire::RankLost& lost);
  void ended(int rank, const std::string& sentence);
  void lose(int rank, const std::string& sentence);
  template <wire::Message T>
  void say(const std::shared_ptr<Guest>& guest, const T& message);
  template <wire::Message T>
  static Task<void> say_one(std::shared_ptr<Guest> guest, T message);
  void say_waiting();
  void tell_all(Word word);
  Task<void> tell(std::shared_ptr<Guest> guest);
  void run(Task<void> saying);
  Task<void> wait_for_sayings(Duration limit);
  Task<bool> wait_a_second(Stop& stop);

  std::string news() const;
  std::uint64_t strangers() const noexcept { return turned_away_ - std::min(ours_, turned_away_); }
  wire::Roster make_roster();

  Loop& loop_;
  io::Net& net_;
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
  std::deque<Word> words_;              // said to all, the roster first
  std::list<Away> away_;
  std::vector<bool> out_;  // by rank: lost, or left in order
  bool settled_ = false;
  bool leaving_ = false;
  std::vector<std::optional<std::int32_t>> firsts_;
  Losses losses_;
  std::list<std::shared_ptr<Guest>> guests_;
  std::list<Saying> sayings_;
  std::optional<wire::Reception> reception_;
  ReturnDoor door_;
  NeighbourWatch neighbours_;
};

}  // namespace aiacc
