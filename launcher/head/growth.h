// Growth: the ranks that an elastic job gets while it runs, because hosts were found that have slots for them or because ranks
// were lost. It keeps who is where, starts agents on further hosts, and sends them and those that are there what to start.
//
//   a host of the job that is up                 AddRanks
//   another host      connecting ──AgentUp──▶ StartJob ──Prepared──▶ StartRanks ──▶ up
//
// The ranks of the present world are told when all new ranks have said hello, so that they leave it once for several, and
// lose no time while programs start. After ten seconds they are told of those that have come.
//
// Ranks of a host that is not listed any more are dismissed: they leave with the present world, and are not in the next. At least
// one rank of the present world stays, because only such a rank has the state that the others get.
//
// A host that does not come up, or refuses, is reported once and tried again later; the job goes on without it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "launcher/head/host_discovery.h"
#include "launcher/head/host_pool.h"

namespace aiacc::launcher {

class Growth final : private HostDiscovery::Owner {
 public:
  class Owner {
   public:
    // The job runs, and neither ends nor has finished ranks.
    virtual bool may_grow() const = 0;
    virtual HostLink& add_link(HostLink::Settings settings) = 0;
    virtual HostLink& link_at(int index) = 0;
    virtual int next_link() const = 0;
    virtual int add_rank(const HostLink& link) = 0;  // returns its number
    virtual int ranks_in_job() const = 0;            // that have not failed, ones that are on their way included
    virtual int hosts_in_job() const = 0;
    // What every agent of the job is told alike.
    virtual void complete(wire::StartJob& job) const = 0;
    virtual void dismiss(int rank, bool now, const std::string& sentence) = 0;
    // Tells the ranks of the present world that the next one is another.
    virtual void update_hosts(std::uint8_t what) = 0;
    virtual void tell(MessageId id, const std::string& sentence) = 0;

   protected:
    ~Owner() = default;
  };

  struct Settings {
    const HostSource* source = nullptr;
    std::vector<std::string> aside;  // hosts that did not come up, of which the user knows
    std::vector<HostPlan> hosts;     // with which the job begins, in the order of their links
    int most_ranks = 0;
    CooldownRange cooldown;
    Duration start_limit{};  // until an agent must be up; zero: none
  };

  Growth(Loop& loop, io::Host& host, Settings settings, Owner& owner);

  // Finds hosts until stopped.
  Task<void> run(Stop& stop) { return discovery_.run(stop); }

  // Whether the link was added here and its ranks have not been started.
  bool is_starting(const HostLink& link) const;
  void host_up(HostLink& link);
  void prepared(HostLink& link);
  void not_started(HostLink& link, const wire::NotStarted& message);
  void host_gone(HostLink& link);
  // The rank has ended and gets no replacement in its place. `blames_host`: it has failed, and by no other rank's fault.
  void rank_ended(int rank, bool blames_host);
  void rank_connected(int rank);
  void rank_initialised(int rank) { waiting_.erase(rank); }
  // No host is needed any more that has no ranks yet.
  void stop_starting();
  // The others have finished: also ranks that were in no world yet are ended.
  void finish();

 private:
  enum class State : std::uint8_t { kConnecting, kPreparing, kUp, kEnding };
  struct Link {
    HostPlan host;
    State state = State::kUp;
    std::vector<int> places;  // of the ranks to start when it is up
    Instant since{};
    int ranks = 0;  // that have not ended
  };
  struct Place {
    int link = 0;
    int place = 0;
    bool leaving = false;  // it was dismissed, and its place is free
  };

  void hosts_listed(const std::vector<HostPlan>& hosts) override { pool_.list(hosts); }
  void discovery_failed(const std::string& sentence) override;
  void discovery_tick() override;
  void grow();
  void let_vanished_go();
  void connect(const HostPool::Request& request);
  void give_up_late_hosts();
  void announce_newcomers();
  wire::StartRank new_rank(int index, Link& link, int place);
  void announce(const Link& link, const std::vector<int>& ranks);
  void set_aside(const std::string& host, MessageId id, const std::string& sentence);

  Loop& loop_;
  const HostSource& source_;
  Owner& owner_;
  Duration start_limit_;
  HostPool pool_;
  std::map<int, Link> links_;   // by index
  std::map<int, Place> ranks_;  // that have not ended
  struct Newcomer {
    Instant came = kNever;  // when it said hello
    bool announced = false;
  };
  std::map<int, Newcomer> waiting_;  // ranks that were in no world yet
  std::set<std::string> aside_;      // hosts about which the user was told
  bool said_that_all_vanished_ = false;
  bool finished_ = false;
  HostDiscovery discovery_;
};

}  // namespace aiacc::launcher
