#include "runtime/meeting_guest.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/io/resolve.h"

namespace aiacc {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(10);
constexpr Duration kLongestPause = std::chrono::milliseconds(500);
constexpr Duration kConnectLimit = std::chrono::seconds(3);  // of one address
constexpr Duration kLongestPatience = std::chrono::seconds(60);
// Who answers and does not know the secret may be the job before this one, on its way out.
constexpr Duration kSteadyNo = std::chrono::seconds(10);
constexpr std::uint32_t kRosterBytes = wire::kLargestFrameBytes - 64;  // with room for the seal

}  // namespace

MeetingGuest::MeetingGuest(Loop& loop, io::Net& net, MeetingPlace& place, io::Entropy& entropy, wire::Arrive me,
                           Duration limit)
    : loop_(loop),
      net_(net),
      place_(place),
      entropy_(entropy),
      me_(std::move(me)),
      limit_(limit),
      end_(after(loop.now(), limit)) {}

MeetingGuest::~MeetingGuest() = default;

Task<wire::Roster> MeetingGuest::gather(Stop& stop) {
  try {
    wire::Roster roster = co_await call_until_answered(stop);
    job_ = roster.job;
    co_return roster;
  } catch (const Error& error) {
    if (!stop.requested() || error.code() != Code::kTimeout) throw;
    throw Error(Code::kTimeout, too_late(limit_, attendance()));
  }
}

std::string MeetingGuest::attendance() const {
  if (!last_word_.empty()) return last_word_;
  if (channel_ != nullptr)
    return fmt::format("rank {} reached rank 0 at {} and waits for others", me_.rank, place_.name());
  return fmt::format("rank {} did not reach rank 0 at {} ({} attempts): {}", me_.rank, place_.name(), attempts_,
                     reason_.empty() ? "nothing answered" : reason_);
}

Task<wire::Roster> MeetingGuest::call_until_answered(Stop& stop) {
  for (Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    stop.throw_if_requested();
    MeetingPlace::Found found;
    try {
      found = place_.find(std::max(end_ - loop_.now(), Duration(std::chrono::milliseconds(1))));
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
    give_up_on_a_steady_no(refused);
    co_await sleep_for(loop_, pause, stop);
  }
}

void MeetingGuest::give_up_on_a_steady_no(bool refused) {
  if (!refused) {
    no_since_.reset();
  } else if (!no_since_) {
    no_since_ = loop_.now();
  } else if (loop_.now() - *no_since_ > kSteadyNo) {
    throw Error(
        Code::kMismatch,
        fmt::format("rank {} cannot join the job at {}: {}; another job meets there, or the secrets differ: give "
                    "each job a place of its own and all its ranks the same secret",
                    me_.rank, place_.name(), reason_));
  }
}

// Throws what ends all attempts: a stop, or rank 0's own sentence.
Task<MeetingGuest::Attempt> MeetingGuest::attempt(io::Address address, wire::Secret secret, wire::Roster* roster,
                                                  Stop& stop) {
  ++attempts_;
  bool turned_away = false;
  try {
    channel_ = co_await connect(address, secret, stop);
    co_await channel_->send(me_, stop);
    wire::Frame frame = co_await next(stop);
    while (frame.type == wire::Waiting::kType) {
      last_word_ = frame.as<wire::Waiting>().sentence;
      frame = co_await next(stop);
    }
    if (frame.type == wire::TurnedAway::kType) {
      const auto away = frame.as<wire::TurnedAway>();
      turned_away = true;
      throw Error(static_cast<Code>(away.code), away.sentence);
    }
    *roster = frame.as<wire::Roster>();
    if (roster->ranks.size() != static_cast<std::size_t>(me_.size)) {
      throw Error(Code::kProtocol, fmt::format("rank 0 lists {} ranks of {}", roster->ranks.size(), me_.size));
    }
    prefer(address, *roster);
    host_name_ = roster->ranks.front().host_name;
    co_return Attempt::kRoster;
  } catch (const Error& error) {
    if (stop.requested() || turned_away) throw;
    if (proving_ && !refused_) ++me_.dropped;
    const std::string where = address.text();
    const std::string& why = error.message();
    reason_ = why.find(where) == std::string::npos ? fmt::format("{}: {}", where, why) : why;
    channel_.reset();
    last_word_.clear();
    co_return refused_ ? Attempt::kRefused : Attempt::kFailed;
  }
}

Task<std::unique_ptr<wire::SecureChannel>> MeetingGuest::connect(io::Address address, const wire::Secret& secret,
                                                                 Stop& stop) {
  proving_ = refused_ = false;
  std::unique_ptr<io::Stream> stream;
  {
    Stop connecting(stop);
    const Deadline deadline(loop_, after(loop_.now(), kConnectLimit), connecting,
                            fmt::format("no answer within {:.1f} s", seconds(kConnectLimit)));
    stream = co_await net_.connect(address, connecting);
  }
  proving_ = true;
  Stop proving(stop);
  const Deadline deadline(loop_, after(loop_.now(), patience_), proving,
                          fmt::format("it says nothing for {:.1f} s", seconds(patience_)));
  patience_ = std::min(2 * patience_, kLongestPatience);
  const auto storage = std::make_unique<wire::HandshakeStorage>();
  const wire::Introduction introduction{wire::Purpose::kControl, kMeetingJob, me_.rank, 0};
  wire::DialerHandshake handshake(secret, introduction, entropy_);
  co_await io::write_all(*stream, handshake.hello(), proving);
  const std::span<const std::byte> challenge = co_await wire::read_handshake(*stream, *storage, proving);
  refused_ = true;
  const wire::Bytes proof = handshake.prove(challenge, "");
  refused_ = false;
  co_await io::write_all(*stream, proof, proving);
  const std::span<const std::byte> verdict = co_await wire::read_handshake(*stream, *storage, proving);
  handshake.conclude(verdict);
  proving_ = false;
  const wire::SessionKeys keys = handshake.keys();
  co_return std::make_unique<wire::SecureChannel>(loop_, std::move(stream), keys.to_listener, keys.to_dialer,
                                                  kRosterBytes);
}

Task<wire::Frame> MeetingGuest::next(Stop& stop) {
  std::optional<wire::Frame> frame = co_await channel_->receive(stop);
  if (!frame) throw Error(Code::kPeerFailed, "rank 0 closed the connection");
  co_return std::move(*frame);
}

// The address by which this rank has reached rank 0 is the best that it knows.
void MeetingGuest::prefer(const io::Address& reached, wire::Roster& roster) const {
  std::vector<std::string>& addresses = roster.ranks.front().addresses;
  if (io::is_loopback(reached.name)) return;
  std::erase(addresses, reached.name);
  addresses.insert(addresses.begin(), reached.name);
}

Task<std::vector<std::int32_t>> MeetingGuest::settle(std::int32_t first, Stop& stop) {
  const wire::Neighbours neighbours{first};
  std::optional<wire::Frame> answer;
  while (!answer) {
    std::string broken;
    try {
      co_await channel_->send(neighbours, stop);
      answer = co_await next(stop);
    } catch (const Error& error) {
      if (stop.requested() || (error.code() != Code::kPeerFailed && error.code() != Code::kSystem)) throw;
      broken = error.message();
    }
    if (!answer) co_await come_again(std::move(broken), stop);
  }
  const wire::Frame& frame = *answer;
  if (frame.type == wire::TurnedAway::kType) {
    const auto away = frame.as<wire::TurnedAway>();
    throw Error(static_cast<Code>(away.code), away.sentence);
  }
  co_return frame.as<wire::Settled>().firsts;
}

// Rank 0 takes the ranks of its list again until it has said its last word to all.
Task<void> MeetingGuest::come_again(std::string broken, Stop& stop) {
  Stop patience(stop);
  const Deadline deadline(loop_, after(loop_.now(), kReturnLimit), patience, "rank 0 does not answer");
  wire::Roster again;
  try {
    again = co_await call_until_answered(patience);
  } catch (const Error&) {
    if (stop.requested() || !patience.requested()) throw;
  }
  if (again.job == job_) co_return;
  throw Error(Code::kPeerFailed,
              fmt::format("rank 0 ({}) went away while the job came together: {}; it was not found at {} again",
                          host_name_, broken, place_.name()),
              0);
}

// --- life -----------------------------------------------------------------------------------------------------------------

void MeetingGuest::observe(BirthObserver& observer) noexcept {
  observer_ = &observer;
  listener_.emplace(loop_, listen(), static_cast<Root::Owner&>(*this));
  listener_->start();
}

Task<void> MeetingGuest::listen() {
  for (;;) {
    const wire::Frame frame = co_await next(stop_);
    if (frame.type == wire::Gone::kType) {
      over_ = true;
      co_return;
    }
    const auto lost = frame.as<wire::RankLost>();
    if (lost.rank < 0 || lost.rank >= me_.size || lost.rank == me_.rank) {
      throw Error(Code::kProtocol, fmt::format("it tells of the loss of rank {}, of {} ranks", lost.rank, me_.size));
    }
    observer_->on_rank_lost(lost.rank, std::make_exception_ptr(Error(Code::kPeerFailed, lost.sentence, lost.rank)));
  }
}

void MeetingGuest::root_ended(Root&, std::exception_ptr error) noexcept {
  if (!error || over_) return;
  over_ = true;
  const std::string sentence = fmt::format("rank 0 ({}) went away: {}", host_name_, as_error(error).message());
  observer_->on_rank_lost(0, std::make_exception_ptr(Error(Code::kPeerFailed, sentence, 0)));
}

Task<void> MeetingGuest::leave(Stop& stop) {
  if (over_ || channel_ == nullptr) co_return;
  over_ = true;
  const wire::Leave leave;
  try {
    co_await channel_->send(leave, stop);
    co_await channel_->farewell(stop);
  } catch (const Error&) {
    if (stop.requested()) throw;  // otherwise rank 0 is gone, and nobody needs to know
  }
}

}  // namespace aiacc
