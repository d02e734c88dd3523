// HostLink: aiaccrun's connection to one host of a job: the local process that leads there (a keeper, or a starter such
// as ssh), whose standard streams are the control channel for the whole job, and the state of the agent at the other
// end.
//
//   starting ──marker, AgentUp──▶ up ──JobEnded or NotStarted──▶ done ──end of stream, end of process──▶ gone
//
// A link may become gone from any state; the owner is told once, as the last callback.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/io/clock.h"
#include "base/io/host.h"
#include "base/task/scope.h"
#include "base/wire/launch_messages.h"
#include "launcher/channel/frames.h"
#include "launcher/channel/lease.h"
#include "launcher/head/start_failure.h"

namespace aiacc::launcher {

class HostLink {
 public:
  struct Settings {
    int index = 0;
    std::string name;
    bool local = false;  // by pipes to a keeper of this host
    bool ssh = false;
    std::vector<io::SpawnSpec> starts;  // tried in this order; the next one if aiaccrun was not found (127)
    Duration lease{};                   // zero: its channel cannot be cut
  };

  class Owner {
   public:
    virtual void host_up(HostLink& link) = 0;
    // A frame that the link does not handle itself.
    virtual void frame_received(HostLink& link, const wire::Frame& frame) = 0;
    virtual void host_gone(HostLink& link) = 0;

   protected:
    ~Owner() = default;
  };

  HostLink(Loop& loop, io::Host& host, io::Entropy& entropy, Settings settings, Owner& owner);
  HostLink(const HostLink&) = delete;
  HostLink& operator=(const HostLink&) = delete;

  // Starts the process and runs until it has ended.
  Task<void> run(Stop& stop);

  // Drops the message if no agent can read it.
  template <wire::Message T>
  void send(const T& message) {
    if (up_ && !gone_) sender_->send(message);
  }
  // Waits until everything sent was written.
  Task<void> flushed(Stop& stop);
  // The host is no longer needed: closes the channel, or ends the starter if there is no channel yet.
  void close_channel();
  // Gives up waiting for the host: ends the process that leads there; the agent, if alive, then kills its ranks by
  // itself.
  void abandon();
  // The host does not answer, or answers incorrectly: as close_channel(), with `sentence` as the reason.
  void give_up(MessageId id, std::string sentence);

  int index() const noexcept { return settings_.index; }
  const std::string& name() const noexcept { return settings_.name; }
  bool local() const noexcept { return settings_.local; }
  bool up() const noexcept { return up_; }      // has been up; see gone()
  bool done() const noexcept { return done_; }  // the agent has said good-bye
  bool gone() const noexcept { return gone_; }
  bool channel_closed() const noexcept { return channel_closed_; }
  const wire::AgentUp& agent() const noexcept { return agent_; }
  std::uint64_t dropped_bytes() const noexcept { return dropped_; }
  std::uint64_t unauthenticated() const noexcept { return unauthenticated_; }

  // For a host that never came up.
  const StartAttempt& attempt() const noexcept { return attempt_; }
  // For a host that was lost before it was done: the reason, as a clause.
  std::string loss() const;

 private:
  bool spawn(const io::SpawnSpec& spec);
  Task<void> run_attempt(Stop& stop);
  Task<void> write(Stop& stop);
  Task<void> listen(Stop& stop);
  Task<void> read_frames(Stop& stop);
  Task<void> read_errors(Stop& stop);
  Task<void> watch_starter(Stop& stop);
  Task<void> beat(Stop& stop);
  Task<void> wait_for_process(Stop& stop);
  void end_starter();
  void handle_frame(const wire::Frame& frame);
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
  Stop* listening_ = nullptr;  // while listen() runs
  Event errors_ended_;
  wire::AgentUp agent_;
  StartAttempt attempt_;
  std::vector<StartAttempt> tried_;  // earlier failed attempts
  std::string broken_;               // why the channel ended, if not in order
  std::uint64_t dropped_ = 0;
  std::uint64_t unauthenticated_ = 0;
  bool up_ = false;
  bool done_ = false;
  bool gone_ = false;
  bool channel_closed_ = false;
};

}  // namespace aiacc::launcher
