// Head: aiaccrun itself once the plan stands. Tells the agent what to start, prints what ranks write, turns signals,
// time-outs and ends of ranks into the end of the job, and knows the exit code and the closing line.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/io/host.h"
#include "base/io/net.h"
#include "base/io/signals.h"
#include "base/task/scope.h"
#include "base/wire/launch_messages.h"
#include "launcher/escalation.h"
#include "launcher/exit_rules.h"
#include "launcher/frames.h"
#include "launcher/sink.h"

namespace aiacc::launcher {

class Head final : private Sink::Owner {
 public:
  struct Settings {
    std::string host_name;
    int ranks = 0;
    bool tag_output = false;
    Duration timeout{};  // zero: none
    Duration kill_grace{};
    // A line for each rank with the processing units that the kernel reports; empty: not asked for.
    std::function<std::string(const std::vector<std::uint32_t>&)> describe_binding;
  };

  Head(Loop& loop, io::Host& host, io::Signals& signals, io::Process& keeper, io::Stream& out, io::Stream& err,
       Settings settings);

  // A line of the launcher on stderr, in order with what ranks write there.
  void say(MessageId id, const std::string& sentence);

  // Runs the job; returns aiaccrun's exit code when nothing of the job lives any more.
  Task<int> run(wire::StartJob job, Stop& stop);

 private:
  // Why the job ends: the first of these in time.
  enum class Cause : std::uint8_t {
    kNone,
    kRank,
    kTimeout,
    kInterrupted,
    kReaderLeft,
    kOutputFailed,
    kNotStarted,
    kLost
  };

  struct Alarm final : Timer {
    Alarm(Head& head, void (Head::*call)()) : owner(head), action(call) {}
    void expired() noexcept override { (owner.*action)(); }
    Head& owner;
    void (Head::*action)();
  };

  Task<void> control(Stop& stop);
  Task<void> handle_signals(Stop& stop);
  Task<void> conclude(Stop& stop);
  void handle(const wire::Frame& frame);
  void started(const wire::Started& message);
  void not_started(const wire::NotStarted& message);
  void rank_changed(const wire::RankChanged& message);
  void rank_stopped(const wire::RankStopped& message);
  void channel_ended();

  bool begin_end(Cause cause);
  void end_by(const Escalation::Step& step, bool everyone);
  void end_job();
  void timed_out();
  void flush_expired();
  void arm_flush();
  void closing_line();
  int exit_code() const;

  void sink_took(Sink& sink, std::size_t bytes) override;
  void sink_broke(Sink& sink, const Error& error) override;

  Loop& loop_;
  io::Host& host_;
  io::Signals& signals_;
  io::Process& keeper_;
  Settings settings_;
  FrameSender to_agent_;
  Sink out_;
  Sink err_;
  std::uint64_t owed_[2] = {0, 0};  // credit that was not told to the agent yet
  ExitRules rules_;
  Escalation escalation_;
  Alarm timeout_{*this, &Head::timed_out};
  Alarm flush_{*this, &Head::flush_expired};
  Event over_;
  Instant started_{};
  Instant flush_until_ = kNever;
  Cause cause_ = Cause::kNone;
  int stopped_ranks_ = 0;  // running when the job began to end
  std::string cause_sentence_;
  int not_started_code_ = 0;
  MessageId not_started_id_ = MessageId::kInternal;
  bool job_ended_ = false;  // the agent has said good-bye
  std::uint64_t dropped_by_agent_ = 0;
};

}  // namespace aiacc::launcher
