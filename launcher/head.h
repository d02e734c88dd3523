// Head: aiaccrun itself once the plan stands. Reaches the hosts, tells their agents what to start, prints what ranks write,
// turns signals, time-outs, ends of ranks and losses of hosts into the end of the job, and knows the exit code and the
// closing line.
//
// All hosts are reached at once; when every agent is up each prepares the job, and when all are prepared the ranks start. So
// a host that cannot be reached, or lacks the program, costs nothing but its sentence.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/io/clock.h"
#include "base/io/host.h"
#include "base/io/net.h"
#include "base/io/signals.h"
#include "base/task/scope.h"
#include "base/wire/launch_messages.h"
#include "launcher/escalation.h"
#include "launcher/exit_rules.h"
#include "launcher/host_link.h"
#include "launcher/input_source.h"
#include "launcher/machine_census.h"
#include "launcher/sink.h"
#include "launcher/verdict.h"
#include "launcher/world_fence.h"

namespace aiacc::launcher {

class Head final : private Sink::Owner, private InputSource::Owner, private HostLink::Owner {
 public:
  struct Settings {
    std::vector<HostLink::Settings> hosts;  // in the order of their indices
    std::vector<wire::StartJob> jobs;  // what each host's agent is to start; the head adds what it learns on the way
    bool separate_hosts = false;       // whatever machines they are
    bool tag_output = false;
    io::Stream* in = nullptr;  // standard input; null: no rank reads it
    int input_rank = 0;        // that does
    Duration timeout{};        // zero: none
    Duration kill_grace{};
    Duration start_limit{};  // until every agent must be up
  };

  Head(Loop& loop, io::Host& host, io::Signals& signals, io::Entropy& entropy, io::Stream& out, io::Stream& err,
       Settings settings);

  // A line of the launcher on stderr, in order with what ranks write there.
  void say(MessageId id, const std::string& sentence);

  // Runs the job; returns aiaccrun's exit code when nothing of the job lives any more.
  Task<int> run(Stop& stop);

  // After run(): hosts, by their indices, that turned out to be the same machine. Nothing was started then, nothing said, and the
  // return value means nothing: the job is to be planned anew.
  const std::vector<std::vector<int>>& same_machines() const noexcept { return same_machines_; }

 private:
  struct Alarm final : Timer {
    Alarm(Head& head, void (Head::*call)()) : owner(head), action(call) {}
    void expired() noexcept override { (owner.*action)(); }
    Head& owner;
    void (Head::*action)();
  };

  void host_up(HostLink& link) override;
  void host_said(HostLink& link, const wire::Frame& frame) override;
  void host_gone(HostLink& link) override;

  void arm_start();
  void all_up();
  void found(const HostLink& link, const wire::Found& message);
  void send_jobs();
  void host_answered();
  void host_failed_to_start();
  void give_up_start();
  void start_is_slow();
  void start_takes_too_long();
  std::vector<std::string> awaited_hosts() const;

  void refuse_start();
  void started(const HostLink& link, const wire::Started& message);
  void not_started(const HostLink& link, const wire::NotStarted& message);
  void output(const HostLink& link, wire::Output message);
  void rank_changed(const HostLink& link, const wire::RankChanged& message);
  void rank_stopped(const HostLink& link, const wire::RankStopped& message);
  void host_ready(const HostLink& link, const wire::HostReady& message);
  void lose_rank(const HostLink& link, const wire::LoseRank& message);
  void lose_host(const HostLink& link, MessageId id, const std::string& sentence);
  void tell_who_is_missing();
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
  std::vector<std::unique_ptr<HostLink>> links_;
  std::vector<std::size_t> hosts_of_ranks_;
  struct Owed {
    std::uint64_t bytes[2] = {0, 0};
  };
  std::vector<Owed> owed_;  // credit that a host was not told of yet
  std::uint64_t credit_ = 0;
  Sink out_;
  Sink err_;
  std::optional<InputSource> input_;
  ExitRules rules_;
  WorldFence fence_;
  std::optional<MachineCensus> census_;
  std::vector<std::vector<int>> same_machines_;
  Escalation escalation_;
  Alarm missing_{*this, &Head::tell_who_is_missing};
  Alarm timeout_{*this, &Head::timed_out};
  Alarm flush_{*this, &Head::flush_expired};
  Alarm abandon_{*this, &Head::abandon_hosts};
  Alarm slow_start_{*this, &Head::start_is_slow};
  Alarm start_limit_{*this, &Head::start_takes_too_long};
  Alarm start_failed_{*this, &Head::give_up_start};
  Event over_;
  Instant started_{};
  Instant flush_until_ = kNever;
  Verdict verdict_;
  std::vector<std::string> evidence_;         // lines behind the closing line
  std::map<int, wire::NotStarted> refusals_;  // by hosts that were to prepare the job, under their index
  std::size_t answered_ = 0;                  // hosts that are prepared, or refused
  std::vector<bool> asked_;                   // by host: what ended there, and it has not answered yet
  bool jobs_sent_ = false;
  bool ranks_started_ = false;
};

}  // namespace aiacc::launcher
