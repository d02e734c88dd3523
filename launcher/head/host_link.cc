#include "launcher/head/host_link.h"

#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <span>
#include <utility>

#include "launcher/channel/marker.h"
#include "launcher/cli/options.h"

namespace aiacc::launcher {

namespace {

constexpr Duration kEndLimit = std::chrono::seconds(10);  // between the end of the stream and that of the process
constexpr Duration kMuteLimit = std::chrono::seconds(1);  // the same, if the agent said no good-bye
constexpr Duration kKillLimit = std::chrono::seconds(2);  // between KILL and the end of the process
// Other processes, such as ssh's master, may hold its stderr open.
constexpr Duration kErrorsLimit = std::chrono::milliseconds(200);
constexpr Duration kDrainLimit = std::chrono::seconds(1);  // for bytes still in transit when the starter ended
constexpr std::size_t kErrorsKept = 8 * 1024;
constexpr int kNoProgram = 127;

std::string in_one_line(const std::string& text) {
  const auto lines = last_lines(text, 1);
  return lines.empty() ? "an unknown version" : lines.front();
}

}  // namespace

HostLink::HostLink(Loop& loop, io::Host& host, io::Entropy& entropy, Settings settings, Owner& owner)
    : loop_(loop), host_(host), entropy_(entropy), settings_(std::move(settings)), owner_(owner), errors_ended_(loop) {}

Task<void> HostLink::run(Stop& stop) {
  for (const io::SpawnSpec& spec : settings_.starts) {
    if (channel_closed_ || !spawn(spec)) break;
    co_await run_attempt(stop);
    attempt_.ended = process_->ended();
    const bool no_program = !up_ && attempt_.ended && attempt_.ended->code == kNoProgram;
    if (!no_program || channel_closed_ || &spec == &settings_.starts.back()) break;
    tried_.push_back(attempt_);
  }
  attempt_.earlier = std::move(tried_);
  gone_ = true;
  owner_.host_gone(*this);
}

bool HostLink::spawn(const io::SpawnSpec& spec) {
  attempt_ = StartAttempt{};
  attempt_.host = settings_.name;
  attempt_.command = spec.argv;
  attempt_.ssh = settings_.ssh;
  broken_.clear();
  errors_ended_.reset();
  try {
    process_ = host_.spawn(spec);
    return true;
  } catch (const io::SpawnError& error) {
    attempt_.not_run = error.message();
    attempt_.not_found = error.errno_value() == ENOENT;
  } catch (const Error& error) {
    attempt_.not_run = error.message();
    attempt_.limit = true;
  }
  return false;
}

Task<void> HostLink::run_attempt(Stop& stop) {
  marker_ = make_marker(entropy_);
  sender_ = std::make_unique<FrameSender>(loop_, *process_->in);
  wire::Greeting greeting;
  greeting.version = version_text();
  greeting.marker = marker_;
  greeting.lease_ms = std::chrono::duration_cast<std::chrono::milliseconds>(settings_.lease).count();
  sender_->send(greeting);

  Scope scope(loop_, stop);
  scope.spawn(write(scope.stop()));
  if (process_->err) scope.spawn(read_errors(scope.stop()));
  if (settings_.lease > Duration::zero()) scope.spawn(beat(scope.stop()));
  if (!settings_.local) scope.spawn(watch_starter(scope.stop()));
  std::exception_ptr error;
  try {
    co_await listen(scope.stop());
    co_await wait_for_process(scope.stop());
  } catch (...) {
    error = std::current_exception();
  }
  scope.stop().request(std::make_exception_ptr(Error(Code::kAborted, "the host is gone")));
  try {
    co_await scope.join();
  } catch (const Error&) {
    // The stop that was requested above.
  }
  process_->in.reset();
  if (error) std::rethrow_exception(error);
}

Task<void> HostLink::write(Stop& stop) {
  co_await sender_->run(stop);
  process_->in.reset();  // the agent reads the end of its stream
}

Task<void> HostLink::listen(Stop& stop) {
  Stop hearing(stop);
  listening_ = &hearing;
  try {
    co_await read_frames(hearing);
  } catch (const Error& error) {
    broken_ = error.message();
    if (!up_ && error.code() == Code::kProtocol) attempt_.refused = "what answered is no agent: " + broken_;
  }
  listening_ = nullptr;
  stop.throw_if_requested();
}

Task<void> HostLink::read_frames(Stop& stop) {
  FrameReader frames(*process_->out, wire::kLargestFrameBytes);
  MarkerScan scan(answer_to(marker_));
  std::vector<std::byte> bytes(4096);
  std::optional<std::string_view> rest;
  while (!rest) {
    const std::size_t got = co_await process_->out->read_some(bytes, stop);
    if (got == 0) co_return;
    try {
      rest = scan.add(std::string_view(reinterpret_cast<const char*>(bytes.data()), got));
    } catch (const Error& error) {
      attempt_.refused = error.message();
    }
    attempt_.printed =
        std::string(scan.banner().substr(scan.banner().size() - std::min(scan.banner().size(), kErrorsKept)));
    if (!attempt_.refused.empty()) {
      end_starter();
      co_return;
    }
  }
  frames.feed(std::as_bytes(std::span(*rest)));
  for (;;) {
    auto frame = co_await frames.next(stop);
    if (!frame) co_return;
    if (lease_) lease_->renew();
    handle_frame(*frame);
  }
}

void HostLink::handle_frame(const wire::Frame& frame) {
  if (!up_ && frame.type == wire::AgentUp::kType) return agent_up(frame);
  if (!up_ && frame.type != wire::NotStarted::kType) {
    throw Error(Code::kProtocol, fmt::format("the agent began with a message of type {}", frame.type));
  }
  switch (frame.type) {
    case wire::Beat::kType: return;
    case wire::JobEnded::kType: {
      const auto ended = frame.as<wire::JobEnded>();
      dropped_ = ended.dropped_bytes;
      unauthenticated_ = ended.unauthenticated;
      done_ = true;
      return sender_->close();  // there is nothing more to send
    }
    case wire::NotStarted::kType:
      done_ = true;
      up_ = true;
      sender_->close();
      return owner_.frame_received(*this, frame);
    default: return owner_.frame_received(*this, frame);
  }
}

void HostLink::agent_up(const wire::Frame& frame) {
  // Every version begins with these two fields; the rest may differ.
  std::uint16_t protocol = 0;
  std::string version;
  wire::Reader reader(frame.body, "the agent's first message");
  reader.get(protocol);
  reader.get(version);
  if (protocol != wire::kLaunchProtocol || version != version_text()) {
    std::string there = in_one_line(version);
    std::string here = in_one_line(version_text());
    if (there == here) {  // two builds of one version
      there += fmt::format(" with launch protocol {}", protocol);
      here += fmt::format(" with {}", wire::kLaunchProtocol);
    }
    return give_up(MessageId::kRemoteVersion,
                   fmt::format("{} is there and {} here; install the same version on both", there, here));
  }
  agent_ = frame.as<wire::AgentUp>();
  up_ = true;
  owner_.host_up(*this);
}

Task<void> HostLink::read_errors(Stop& stop) {
  std::vector<std::byte> bytes(1024);
  try {
    for (;;) {
      const std::size_t got = co_await process_->err->read_some(bytes, stop);
      if (got == 0) break;
      attempt_.errors.append(reinterpret_cast<const char*>(bytes.data()), got);
      if (attempt_.errors.size() > kErrorsKept) attempt_.errors.erase(0, attempt_.errors.size() - kErrorsKept);
    }
  } catch (const Error&) {
    if (stop.requested()) throw;
  }
  errors_ended_.set();
}

// A starter may pass its descriptors on and end while the channel stays open. Then no local process represents the host
// any more, so it counts as lost.
Task<void> HostLink::watch_starter(Stop& stop) {
  co_await process_->wait(stop);
  co_await sleep_for(loop_, kDrainLimit, stop);
  if (listening_ == nullptr) co_return;
  listening_->request(std::make_exception_ptr(
      Error(Code::kPeerFailed, fmt::format("{} ended before the job did", quoted(attempt_.command.front())))));
}

Task<void> HostLink::beat(Stop& stop) {
  lease_.emplace(settings_.lease);
  for (;;) {
    co_await sleep_for(loop_, lease_->interval(), stop);
    if (!up_) continue;  // before that, the starter's own time-out and the start limit apply
    wire::Beat message;
    sender_->send(message);
    if (!lease_->tick() || listening_ == nullptr) continue;
    listening_->request(std::make_exception_ptr(Error(
        Code::kTimeout, fmt::format("nothing was heard of it for {:g} s (AIACC_LEASE)", seconds(settings_.lease)))));
  }
}

Task<void> HostLink::wait_for_process(Stop& stop) {
  // After a broken channel to another host there is nothing to wait for, but a local keeper still ends its agent's
  // descendants.
  Duration first = kEndLimit;
  if (!settings_.local && up_ && !done_) first = kMuteLimit;
  if (!settings_.local && !broken_.empty()) first = Duration::zero();
  for (const Duration limit : {first, kKillLimit}) {
    Stop patience(stop);
    Deadline deadline(loop_, after(loop_.now(), limit), patience, "it does not end");
    try {
      co_await process_->wait(patience);
      break;
    } catch (const Error&) {
      stop.throw_if_requested();
    }
    if (!settings_.local) end_starter();
  }
  if (!process_->err) co_return;
  Stop patience(stop);
  Deadline deadline(loop_, after(loop_.now(), kErrorsLimit), patience, "its stderr is still open");
  try {
    co_await errors_ended_.wait(patience);
  } catch (const Error&) {
    stop.throw_if_requested();
  }
}

Task<void> HostLink::flushed(Stop& stop) {
  if (up_ && !gone_) co_await sender_->flushed(stop);
}

void HostLink::end_starter() {
  if (!process_->ended()) attempt_.ended_by_us = true;
  process_->signal_group(SIGKILL);
}

void HostLink::close_channel() {
  if (std::exchange(channel_closed_, true) || gone_ || process_ == nullptr) return;
  if (up_) return sender_->close();
  end_starter();
  if (listening_ != nullptr) {
    listening_->request(std::make_exception_ptr(Error(Code::kAborted, "the job was given up before it was up")));
  }
}

void HostLink::abandon() {
  if (settings_.local || gone_ || process_ == nullptr) return;
  end_starter();
  if (listening_ == nullptr) return;
  listening_->request(std::make_exception_ptr(Error(Code::kAborted, "it did not confirm the end of its ranks")));
}

void HostLink::give_up(MessageId id, std::string sentence) {
  attempt_.refused_id = id;
  attempt_.refused = std::move(sentence);
  close_channel();
}

std::string HostLink::loss() const {
  if (!broken_.empty()) return broken_;
  std::string text = "its connection ended before the job did";
  const auto lines = last_lines(attempt_.errors, 1);
  if (!settings_.local && !attempt_.ended_by_us && attempt_.ended && !attempt_.ended->ok()) {
    text += attempt_.ended->signal != 0
                ? fmt::format(" ({} was killed by signal {}", attempt_.command.front(), attempt_.ended->signal)
                : fmt::format(" ({} exited with {}", attempt_.command.front(), attempt_.ended->code);
    text += lines.empty() ? ")" : ": " + lines.front() + ")";
  }
  return text;
}

}  // namespace aiacc::launcher
