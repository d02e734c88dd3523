#include "runtime/rendezvous/rendezvous_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/io/resolve.h"

namespace aiacc {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(10);
constexpr Duration kLongestPause = std::chrono::milliseconds(500);
constexpr Duration kLongestHandshake = std::chrono::seconds(60);
// A peer that answers without knowing the secret may be the previous job, which still ends. After this time it is an error.
constexpr Duration kRefusalLimit = std::chrono::seconds(10);

}  // namespace

RendezvousClient::RendezvousClient(Loop& loop, io::Net& net, RendezvousEndpoint& endpoint, io::Entropy& entropy,
                                   wire::Arrive me, Duration limit)
    : loop_(loop),
      net_(net),
      endpoint_(endpoint),
      entropy_(entropy),
      me_(std::move(me)),
      limit_(limit),
      end_(after(loop.now(), limit)),
      ended_(loop),
      to_report_(loop),
      local_peers_(loop, static_cast<LocalPeerWatch::Owner&>(*this)) {}

RendezvousClient::~RendezvousClient() = default;

Task<wire::Roster> RendezvousClient::gather(Stop& stop) {
  try {
    co_return co_await dial_until_answered(stop);
  } catch (const Error& error) {
    if (!stop.requested() || error.code() != Code::kTimeout) throw;
    throw Error(Code::kTimeout, too_late(limit_, arrivals()));
  }
}

std::string RendezvousClient::arrivals() const {
  if (!last_waiting_.empty()) return last_waiting_;
  if (channel_ != nullptr)
    return fmt::format("rank {} reached rank 0 at {} and waits for others", me_.rank, endpoint_.name());
  return fmt::format("rank {} did not reach rank 0 at {} ({} attempts): {}", me_.rank, endpoint_.name(), attempts_,
                     reason_.empty() ? "nothing answered" : reason_);
}

Task<wire::Roster> RendezvousClient::dial_until_answered(Stop& stop) {
  for (Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    stop.throw_if_requested();
    RendezvousEndpoint::Found found;
    try {
      found = endpoint_.find(std::max(end_ - loop_.now(), Duration(std::chrono::milliseconds(1))));
    } catch (const Error& error) {
      if (error.code() != Code::kPeerFailed) throw;
      reason_ = error.message();
    }
    bool refused = false;
    for (const io::Address& address : found.addresses) {
      wire::Roster roster;
      const Attempt outcome = co_await attempt(address, found.secret, &roster, stop);
      if (outcome == Attempt::kRoster) co_return roster;
      refused = refused || outcome == Attempt::kRefused;
    }
    give_up_if_refused(refused);
    co_await sleep_for(loop_, pause, stop);
  }
}

void RendezvousClient::give_up_if_refused(bool refused) {
  if (!refused) {
    refused_since_.reset();
  } else if (!refused_since_) {
    refused_since_ = loop_.now();
  } else if (loop_.now() - *refused_since_ > kRefusalLimit) {
    throw Error(
        Code::kMismatch,
        fmt::format("rank {} cannot join the job at {}: {}; another job meets there, or the secrets differ: give "
                    "each job a place of its own and all its ranks the same secret",
                    me_.rank, endpoint_.name(), reason_));
  }
}

// Throws only if no further attempt shall follow: after a stop, or a refusal by rank 0.
Task<RendezvousClient::Attempt> RendezvousClient::attempt(io::Address address, wire::Secret secret,
                                                          wire::Roster* roster, Stop& stop) {
  ++attempts_;
  received_ = 0;
  bool join_refused = false;
  const RendezvousDialer dialer{loop_, net_, entropy_, secret, kRendezvousJob, me_.rank};
  RendezvousDial dial(dialer);
  try {
    co_await dial_and_arrive(dial, address, stop);
    wire::Frame frame = co_await receive_or_throw(stop);
    while (frame.type == wire::Waiting::kType) {
      last_waiting_ = frame.as<wire::Waiting>().sentence;
      frame = co_await receive_or_throw(stop);
    }
    if (frame.type == wire::JoinRefused::kType) {
      const auto refused = frame.as<wire::JoinRefused>();
      join_refused = true;
      throw Error(static_cast<Code>(refused.code), refused.sentence);
    }
    *roster = frame.as<wire::Roster>();
    if (roster->ranks.size() != static_cast<std::size_t>(me_.size)) {
      throw Error(Code::kProtocol, fmt::format("rank 0 lists {} ranks of {}", roster->ranks.size(), me_.size));
    }
    host_name_ = roster->ranks.front().host_name;
    if (dial.version() < wire::kFirstWithShares)
      remarks_ = {wire::old_version_remark(fmt::format("rank 0 on host {}", host_name_))};
    frame = co_await receive_or_throw(stop);
    const io::Address back = io::Address::tcp(host_address(address, *roster), frame.as<wire::ReconnectPort>().port);
    const RendezvousDialer returning{loop_, net_, entropy_, wire::Secret::from(roster->secret), roster->job, me_.rank};
    reconnect_.emplace(returning, back);
    prefer_address(address, *roster);
    co_return Attempt::kRoster;
  } catch (const Error& error) {
    if (stop.requested() || join_refused) throw;
    if (dial.proving() && !dial.refused()) ++me_.dropped;
    const std::string where = address.text();
    const std::string& why = error.message();
    reason_ = why.find(where) == std::string::npos ? fmt::format("{}: {}", where, why) : why;
    channel_.reset();
    last_waiting_.clear();
    co_return dial.refused() ? Attempt::kRefused : Attempt::kFailed;
  }
}

Task<void> RendezvousClient::dial_and_arrive(RendezvousDial& dial, io::Address address, Stop& stop) {
  co_await dial.connect(std::move(address), stop);
  {
    Stop proving(stop);
    const Deadline deadline(loop_, after(loop_.now(), handshake_limit_), proving,
                            fmt::format("it says nothing for {:.1f} s", seconds(handshake_limit_)));
    handshake_limit_ = std::min(2 * handshake_limit_, kLongestHandshake);
    channel_ = co_await dial.prove(proving);
  }
  co_await channel_->send(me_, stop);
}

// Receives, and counts the messages to all ranks.
Task<std::optional<wire::Frame>> RendezvousClient::receive(Stop& stop) {
  std::optional<wire::Frame> frame = co_await channel_->receive(stop);
  if (frame && frame->type != wire::Waiting::kType) ++received_;
  co_return frame;
}

Task<wire::Frame> RendezvousClient::receive_or_throw(Stop& stop) {
  std::optional<wire::Frame> frame = co_await receive(stop);
  if (!frame) throw Error(Code::kPeerFailed, "rank 0 closed the connection");
  co_return std::move(*frame);
}

// The address of rank 0's host: the dialed address, if rank 0 lists it as its own (otherwise there may be a NAT between), or
// else the first address that rank 0 lists.
std::string RendezvousClient::host_address(const io::Address& reached, const wire::Roster& roster) {
  const std::vector<std::string>& named = roster.ranks.front().addresses;
  const bool own = named.empty() || std::find(named.begin(), named.end(), reached.name) != named.end();
  return own ? reached.name : named.front();
}

// Moves the address by which this rank reached rank 0 to the front of rank 0's addresses.
void RendezvousClient::prefer_address(const io::Address& reached, wire::Roster& roster) const {
  std::vector<std::string>& addresses = roster.ranks.front().addresses;
  if (io::is_loopback(reached.name)) return;
  std::erase(addresses, reached.name);
  addresses.insert(addresses.begin(), reached.name);
}

Task<std::vector<std::int32_t>> RendezvousClient::agree_on_hosts(std::int32_t first, Stop& stop) {
  const wire::LocalPeers local_peers{first};
  std::optional<wire::Frame> answer;
  while (!answer) {
    std::string broken;
    try {
      co_await channel_->send(local_peers, stop);
      answer = co_await receive_or_throw(stop);
    } catch (const Error& error) {
      if (stop.requested()) throw;
      broken = error.message();
    }
    if (!answer)
      co_await reconnect(std::move(broken), " while the job came together", LivenessProbe::Unreachable::kNoSign, stop);
  }
  const wire::Frame& frame = *answer;
  if (frame.type == wire::JoinRefused::kType) {
    const auto refused = frame.as<wire::JoinRefused>();
    throw Error(static_cast<Code>(refused.code), refused.sentence);
  }
  std::vector<std::int32_t> firsts = frame.as<wire::HostMap>().firsts;
  check_firsts(firsts, me_.size);
  co_return firsts;
}

// Reconnects. `broken` says why the connection ended and `when` in which phase, for the error sentence.
Task<void> RendezvousClient::reconnect(std::string broken, std::string_view when,
                                       LivenessProbe::Unreachable unreachable, Stop& stop) {
  const wire::Resume back{received_};
  for (bool done = false; !done;) {
    co_await sleep_for(loop_, kFirstPause, stop);
    try {
      std::shared_ptr<wire::SecureChannel> channel = co_await reconnect_->go(unreachable, stop);
      co_await channel->send(back, stop);
      channel_ = std::move(channel);
      done = true;
    } catch (const Error& error) {
      if (stop.requested()) throw;
      if (error.peer() != 0) continue;  // the new connection broke too
      throw Error(Code::kPeerFailed,
                  fmt::format("rank 0 ({}) went away{}: {}; {}", host_name_, when, broken, error.message()), 0);
    }
  }
  reported_ = 0;
  to_report_.set();
}

// --- life -----------------------------------------------------------------------------------------------------------------

void RendezvousClient::observe(BootstrapObserver& observer) noexcept {
  losses_.observe(observer);
  listener_.emplace(loop_, listen(), static_cast<Root::Owner&>(*this));
  listener_->start();
}

// Runs until rank 0 or this rank has left and the other one knows it.
Task<void> RendezvousClient::listen() {
  for (;;) {
    std::optional<wire::Frame> frame;
    std::string broken;
    try {
      frame = co_await receive(stop_);
      if (!frame && !leaving_) broken = "it closed the connection";
    } catch (const Error& error) {
      if (stop_.requested()) throw;
      broken = error.message();
    }
    if (!broken.empty()) {
      co_await reconnect(std::move(broken), "", LivenessProbe::Unreachable::kUnknown, stop_);
      if (leaving_) co_await send_leave(stop_);
      continue;
    }
    if (!frame) co_return;
    if (frame->type == wire::Gone::kType) {
      rank_0_gone_ = true;
      if (!leaving_) co_await channel_->farewell(stop_);  // otherwise send_leave() does
      co_return;
    }
    const auto lost = frame->as<wire::RankLost>();
    if (lost.rank < 0 || lost.rank >= me_.size || lost.rank == me_.rank) {
      throw Error(Code::kProtocol, fmt::format("it tells of the loss of rank {}, of {} ranks", lost.rank, me_.size));
    }
    losses_.lose(lost.rank, lost.sentence);
  }
}

void RendezvousClient::watch_local_peers(io::Processes& processes, const wire::Roster& roster,
                                         const std::vector<std::int32_t>& firsts) {
  leaves_alone_ = can_leave_alone(roster, firsts);
  local_peers_.watch(processes, roster, firsts, me_.rank);
}

void RendezvousClient::local_peer_ended(int rank, const std::string& sentence) {
  const bool all_leave = rank_0_gone_ && !leaves_alone_;
  if (all_leave || leaving_ || losses_.leaving(rank)) return;
  if (rank == 0) return stop_.request(std::make_exception_ptr(Error(Code::kPeerFailed, sentence, 0)));
  losses_.lose(rank, sentence);
  if (rank_0_gone_) return;
  ended_local_peers_.push_back({rank, sentence});
  to_report_.set();
  if (reporter_) return;
  reporter_.emplace(loop_, report(), static_cast<Root::Owner&>(*this));
  reporter_->start();
}

// Reports ended local peers to rank 0, which may be on another host and see nothing of them. A broken connection is handled by
// listen().
Task<void> RendezvousClient::report() {
  for (;;) {
    co_await to_report_.wait(stop_);
    to_report_.reset();
    const std::shared_ptr<wire::SecureChannel> channel = channel_;
    try {
      while (reported_ < ended_local_peers_.size() && !leaving_) {
        const wire::RankLost lost = ended_local_peers_[reported_++];
        co_await channel->send(lost, stop_);
      }
    } catch (const Error&) {
      if (stop_.requested()) throw;
    }
  }
}

void RendezvousClient::root_ended(Root& root, std::exception_ptr error) noexcept {
  if (reporter_ && &root == &*reporter_) return;
  ended_.set();
  if (!error || rank_0_gone_ || leaving_) return;
  rank_0_gone_ = true;
  if (losses_.leaving(0)) return;  // its Gone was lost with the connection
  std::string sentence = as_error(error).message();
  if (as_error(error).peer() != 0) sentence = fmt::format("rank 0 ({}) went away: {}", host_name_, sentence);
  losses_.lose(0, sentence);
}

// If the connection is broken, listen() repeats this on the next one.
Task<void> RendezvousClient::send_leave(Stop& stop) {
  const std::shared_ptr<wire::SecureChannel> channel = channel_;
  const wire::Leave leave;
  try {
    co_await channel->send(leave, stop);
    co_await channel->farewell(stop);
  } catch (const Error&) {
    if (stop.requested()) throw;
  }
}

Task<void> RendezvousClient::leave(Instant end, Stop& stop) {
  if (rank_0_gone_ || !listener_) co_return;
  leaving_ = true;
  Stop waiting(stop);
  const Deadline deadline(loop_, end, waiting, "rank 0 does not listen");
  try {
    co_await send_leave(waiting);
    if (!leaves_alone_) co_await ended_.wait(waiting);
  } catch (const Error&) {
    if (stop.requested()) throw;  // otherwise rank 0 is gone, and the error is of no interest
  }
}

}  // namespace aiacc
