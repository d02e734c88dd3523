// HostLink: one host of a job as aiaccrun sees it: the process that leads there (its keeper, or a starter such as ssh), whose
// two streams are the control channel for the whole job, and what is known of the agent at their other end.
//
//   starting ──marker, AgentUp──▶ up ──JobEnded or NotStarted──▶ done ──end of stream, end of process──▶ gone
//
// From any state a link may be gone; the owner hears of that once, last.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/io/clock.h"
#include "base/io/host.h"
#include "base/task/scope.h"
#include "base/wire/launch_messages.h"
#include "launcher/frames.h"
#include "launcher/lease.h"
#include "launcher/start_failure.h"

namespace aiacc::launcher {

class HostLink {
 public:
  struct Settings {
    int index = 0;
    std::string name;
    bool local = false;  // by pipes to a keeper of this host
    bool ssh = false;
    std::vector<io::SpawnSpec> starts;  // tried in this order: the next when there was no aiaccrun (127)
    Duration lease{};                   // zero: its channel cannot be cut
  };

  class Owner {
   public:
    virtual void host_up(HostLink& link) = 0;
    // Whatever is not the link's own business.
    virtual void host_said(HostLink& link, const wire::Frame& frame) = 0;
    virtual void host_gone(HostLink& link) = 0;

   protected:
    ~Owner() = default;
  };

  HostLink(Loop& loop, io::Host& host, io::Entropy& entropy, Settings settings, Owner& owner);
  HostLink(const HostLink&) = delete;
  HostLink& operator=(const HostLink&) = delete;

  // Starts it and lives as long as it does.
  Task<void> run(Stop& stop);

  // Forgotten if nobody is there to read it.
  template <wire::Message T>
  void send(const T& message) {
    if (up_ && !gone_) sender_->send(message);
  }
  // Until what was sent is on its way.
  Task<void> flushed(Stop& stop);
  // Nothing more is wanted of this host: the channel is closed, or its starter ended while there is none.
  void hang_up();
  // Nobody waits for it any more: what leads there is ended, and its agent, if it lives, ends what it has by itself.
  void abandon();
  // It does not answer, or not as it should: as hang_up(), and the sentence is why.
  void give_up(MessageId id, std::string sentence);

  int index() const noexcept { return settings_.index; }
  const std::string& name() const noexcept { return settings_.name; }
  bool local() const noexcept { return settings_.local; }
  bool up() const noexcept { return up_; }      // it has been; see gone()
  bool done() const noexcept { return done_; }  // the agent has said good-bye
  bool gone() const noexcept { return gone_; }
  bool hung_up() const noexcept { return hung_up_; }
  const wire::AgentUp& agent() const noexcept { return agent_; }
  std::uint64_t dropped_bytes() const noexcept { return dropped_; }
  std::uint64_t strangers() const noexcept { return strangers_; }

  // Of a host that never came up.
  const StartAttempt& attempt() const noexcept { return attempt_; }
  // Of one that is gone before it was done: why, as a clause.
  std::string loss() const;

 private:
  bool spawn(const io::SpawnSpec& spec);
  Task<void> converse(Stop& stop);
  Task<void> write(Stop& stop);
  Task<void> listen(Stop& stop);
  Task<void> hear(Stop& stop);
  Task<void> read_errors(Stop& stop);
  Task<void> watch_starter(Stop& stop);
  Task<void> beat(Stop& stop);
  Task<void> end_of_process(Stop& stop);
  void end_starter();
  void take(const wire::Frame& frame);
  void agent_up(const wire::Frame& frame);

  Loop& loop_;
  io::Host& host_;
  io::Entropy& entropy_;
  Settings settings_;
  Owner& owner_;
  std::string marker_;
  std::unique_ptr<io::Process> process_;
  std::unique_ptr<FrameSender> sender_;
  std::optional<Lease> lease_;
  Stop* hearing_ = nullptr;  // while listen() runs
  Event errors_ended_;
  wire::AgentUp agent_;
  StartAttempt attempt_;
  std::vector<StartAttempt> tried_;  // before it, in vain
  std::string broken_;               // why the channel ended, if not in order
  std::uint64_t dropped_ = 0;
  std::uint64_t strangers_ = 0;
  bool up_ = false;
  bool done_ = false;
  bool gone_ = false;
  bool hung_up_ = false;
};

}  // namespace aiacc::launcher
