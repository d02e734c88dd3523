// launcher/head: aiaccrun while a job runs: links to hosts, the start barrier, same-host detection, signals and
// time-outs, and the job's result. Not here: processes of ranks (launcher/agent) and their output (launcher/stdio).
//
// Head: aiaccrun after planning. It connects to the hosts, tells their agents what to start, prints the ranks' output,
// ends the job on signals, time-outs, exits of ranks and losses of hosts, and determines the exit code and the closing
// line.
//
// It connects to all hosts concurrently. When every agent is up, each prepares the job; when all are prepared, the
// ranks start. So if a host is unreachable or lacks the program, no rank has been started anywhere, and the user gets
// one error.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/io/clock.h"
#include "base/io/host.h"
#include "base/io/net.h"
#include "base/io/signals.h"
#include "base/task/scope.h"
#include "base/wire/launch_messages.h"
#include "base/wire/secret.h"
#include "launcher/agent/exit_rules.h"
#include "launcher/head/escalation.h"
#include "launcher/head/growth.h"
#include "launcher/head/host_link.h"
#include "launcher/head/job_result.h"
#include "launcher/head/same_host_detection.h"
#include "launcher/head/start_barrier.h"
#include "launcher/stdio/input_source.h"
#include "launcher/stdio/sink.h"

namespace aiacc::launcher {

class Head final : private Sink::Owner, private InputSource::Owner, private HostLink::Owner, private Growth::Owner {
 public:
  struct Settings {
    std::vector<HostLink::Settings> hosts;  // in the order of their indices
    std::vector<wire::StartJob> jobs;       // what each host's agent starts; the head adds what it learns at run time
    bool separate_hosts = false;            // never treat two as one machine
    bool tag_output = false;
    bool quiet = false;        // remarks are left out
    io::Stream* in = nullptr;  // standard input; null: no rank reads it
    int input_rank = 0;        // the rank that reads it
    int min_ranks = 0;         // the job goes on while so many have not failed; 0: all
    int max_ranks = 0;         // lost ranks are replaced while no more than so many run; 0: never
    int reset_limit = -1;      // the most worlds after the first; -1: any number
    // For a job that gets hosts while it runs. Then lost ranks are replaced on any host, and survivors wait for them.
    std::optional<Growth::Settings> growth;
    Duration elastic_timeout{};  // how long they may be fewer than min_ranks; zero: any time
    Duration timeout{};          // zero: none
    Duration kill_grace{};
    Duration start_limit{};  // until every agent must be up
  };

  Head(Loop& loop, io::Host& host, io::Signals& signals, io::Entropy& entropy, io::Stream& out, io::Stream& err,
       Settings settings);

  // Writes a line of the launcher to stderr, in order with the ranks' lines; leaves out remarks if the job is quiet.
  void say(MessageId id, const std::string& sentence);

  // Runs the job; returns aiaccrun's exit code when all processes of the job have ended.
  Task<int> run(Stop& stop);

  // After run(): groups of host indices that turned out to be the same machine. If there are any, no rank was started
  // and nothing was printed; the return value is meaningless, and the job must be planned again.
  const std::vector<std::vector<int>>& same_machines() const noexcept { return same_machines_; }
  // After run() of a job that gets hosts: those that did not come up, so that no rank was started and nothing was printed but
  // why. The return value is meaningless, and the job must be planned again without them.
  const std::vector<std::string>& unusable_hosts() const noexcept { return unusable_hosts_; }

 private:
  struct Alarm final : Timer {
    Alarm(Head& head, void (Head::*call)()) : owner(head), action(call) {}
    void expired() noexcept override { (owner.*action)(); }
    Head& owner;
    void (Head::*action)();
  };

  void host_up(HostLink& link) override;
  void frame_received(HostLink& link, const wire::Frame& frame) override;
  void host_gone(HostLink& link) override;

  void arm_start();
  void all_up();
  void same_host_found(const HostLink& link, const wire::SameHostFound& message);
  void send_jobs();
  void host_answered();
  void host_failed_to_start();
  void give_up_start();
  void start_is_slow();
  void start_takes_too_long();
  std::vector<std::string> awaited_hosts() const;

  void refuse_start();
  void started(const HostLink& link, const wire::Started& message);
  void not_started(HostLink& link, const wire::NotStarted& message);
  void output(const HostLink& link, wire::Output message);
  void rank_changed(HostLink& link, const wire::RankChanged& message);
  void tell_of_survived(const std::string& what_follows);
  void settle(HostLink& link, const wire::RankChanged& exit);
  void leave_out(int rank);
  bool resets_are_used_up() const noexcept;
  void open(const StartBarrier::Outcome& outcome);
  void rank_stopped(const HostLink& link, const wire::RankStopped& message);
  void host_ready(const HostLink& link, const wire::HostReady& message);
  void lose_rank(const HostLink& link, const wire::LoseRank& message);
  void drop_rank(int rank);
  void watch_size();
  void too_few_for_too_long();
  std::string what_follows() const;

  bool may_grow() const override;
  HostLink& add_link(HostLink::Settings settings) override;
  HostLink& link_at(int index) override { return *links_[static_cast<std::size_t>(index)]; }
  int next_link() const override { return static_cast<int>(links_.size()); }
  int add_rank(const HostLink& link) override;
  int ranks_in_job() const override;
  int hosts_in_job() const override;
  void complete(wire::StartJob& job) const override;
  void update_hosts(std::uint8_t what) override;
  void dismiss(int rank, bool now, const std::string& sentence) override;
  void tell(MessageId id, const std::string& sentence) override { say(id, sentence); }
  void lose_host(const HostLink& link, MessageId id, const std::string& sentence);
  std::vector<int> ranks_of(const HostLink& link) const;
  bool survive_loss(const HostLink& link, const std::string& sentence);
  void tell_of_lost(const HostLink& link, const std::vector<int>& ranks, const std::string& sentence);
  void await_others();
  bool somebody_waits() const;
  std::string who_is_missing() const;  // of those that are to call aiacc_init; "": nobody
  void tell_who_is_missing();
  void tell_user_who_is_missing();
  void remember(const HostLink& link, MessageId id, const std::string& sentence);
  void say_early_notices();
  void look_for_cause();
  void cause_is_known();
  void check_rank(const HostLink& link, int rank) const;

  Task<void> handle_signals(Stop& stop);
  Task<void> handle_signal(int number, Stop& stop);
  void interrupted(int number);
  Task<void> conclude(Stop& stop);
  void closing_lines();

  bool begin_end(Cause cause);
  void end_by(const Escalation::Step& step, bool everyone);
  void end_job();
  void timed_out();
  void flush_expired();
  void arm_flush();
  void abandon_hosts();
  Task<void> stop_all(Stop& stop);

  template <wire::Message T>
  void to_all(const T& message, const HostLink* but = nullptr) {
    for (const auto& link : links_) {
      if (link.get() != but) link->send(message);
    }
  }
  bool elastic() const { return settings_.max_ranks > 0; }
  bool one_host() const { return links_.size() == 1; }
  const std::string& host_of(int rank) const;

  void sink_took(Sink& sink, int rank, std::size_t bytes) override;
  void sink_broke(Sink& sink, const Error& error) override;

  InputSource& input_of(const HostLink& link);
  void input_read(std::string bytes) override;
  void input_failed(const Error& error) override;

  Loop& loop_;
  io::Host& host_;
  io::Signals& signals_;
  io::Entropy& entropy_;
  Settings settings_;
  Scope* scope_ = nullptr;  // of run()
  std::vector<std::unique_ptr<HostLink>> links_;
  std::vector<std::size_t> hosts_of_ranks_;
  struct Owed {
    std::uint64_t bytes[2] = {0, 0};
  };
  std::vector<Owed> owed_;                  // credit not yet returned to a host
  std::vector<std::size_t> bindings_told_;  // ranks of a host whose bindings were printed
  wire::StartJob shared_;                   // what all agents are told alike, but for the secret
  wire::Secret secret_;                     // once all agents have it, of a job that may grow only
  std::uint64_t credit_ = 0;
  Sink out_;
  Sink err_;
  std::optional<InputSource> input_;
  ExitRules rules_;
  StartBarrier start_barrier_;
  std::optional<Growth> growth_;
  std::optional<SameHostDetection> same_host_detection_;
  std::vector<std::vector<int>> same_machines_;
  std::vector<std::string> unusable_hosts_;
  Escalation escalation_;
  Alarm missing_{*this, &Head::tell_who_is_missing};
  Alarm awaited_{*this, &Head::tell_user_who_is_missing};
  Alarm timeout_{*this, &Head::timed_out};
  Alarm too_few_{*this, &Head::too_few_for_too_long};
  Alarm flush_{*this, &Head::flush_expired};
  Alarm abandon_{*this, &Head::abandon_hosts};
  Alarm slow_start_{*this, &Head::start_is_slow};
  Alarm start_limit_{*this, &Head::start_takes_too_long};
  Alarm start_failed_{*this, &Head::give_up_start};
  Event over_;
  Instant started_{};
  Instant waiting_since_{};  // ranks, for others, while awaited_ is armed
  Instant flush_until_ = kNever;
  JobResult result_;
  std::vector<std::string> evidence_;  // lines to print after the closing line
  // Before the ranks start: what hosts had to say, by message, sentence without the host's name, and index of the host.
  std::map<std::pair<MessageId, std::string>, std::map<int, std::string>> early_notices_;
  std::map<int, wire::NotStarted> refusals_;  // by index of the host that could not prepare the job
  std::size_t answered_ = 0;                  // hosts that have prepared or refused the job
  std::vector<bool> exits_awaited_;           // by host: asked for exits there, and has not answered yet
  bool jobs_sent_ = false;
  bool ranks_started_ = false;
  bool one_is_done_ = false;  // a rank has exited with 0: nobody is replaced any more
};

}  // namespace aiacc::launcher
