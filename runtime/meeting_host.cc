#include "runtime/meeting_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace aiacc {
namespace {

constexpr Duration kBetweenWords = std::chrono::seconds(1);  // to those who wait

}  // namespace

MeetingHost::MeetingHost(Loop& loop, io::Net& net, Listeners listeners, const wire::Secret& secret,
                         io::Entropy& entropy, const wire::Arrive& me, std::string place, Duration limit)
    : loop_(loop),
      net_(net),
      secret_(secret),
      entropy_(entropy),
      attendance_(me, place),
      place_(std::move(place)),
      limit_(limit),
      changed_(loop),
      said_(loop),
      out_(static_cast<std::size_t>(me.size)),
      firsts_(static_cast<std::size_t>(me.size)),
      door_(loop, static_cast<ReturnDoor::Owner&>(*this), std::move(listeners.back), entropy),
      neighbours_(loop, static_cast<NeighbourWatch::Owner&>(*this)) {
  reception_.emplace(loop_, static_cast<wire::Reception::Owner&>(*this), std::move(listeners.place));
}

MeetingHost::~MeetingHost() = default;

// --- guests ---------------------------------------------------------------------------------------------------------------

// Whatever number of ranks a guest believes in, it shall get its sentence from admit(): it knows the secret.
Task<void> MeetingHost::greet(std::unique_ptr<io::Stream> stream, bool* stranger, Stop& stop) {
  const wire::ListenerHandshake::Expected expected{wire::Purpose::kControl, kMeetingJob, 0,
                                                   std::numeric_limits<std::int32_t>::max()};
  wire::ListenerHandshake handshake(secret_, expected, entropy_);
  const bool proved = co_await wire::hear_proof(handshake, *stream, stop);
  if (!proved) co_return;
  *stranger = false;
  const wire::Bytes verdict = handshake.decide(wire::Verdict::kAccepted, "");
  co_await io::write_all(*stream, verdict, stop);
  std::string from = stream->describe();
  auto guest = std::make_shared<Guest>(loop_, std::move(stream), handshake.keys(), std::move(from));
  guest->said.rank = handshake.who().from;
  take_in(std::move(guest));
}

void MeetingHost::take_in(std::shared_ptr<Guest> guest) {
  Guest* raw = guest.get();
  guests_.push_back(std::move(guest));
  raw->reader.emplace(loop_, serve(raw), static_cast<Root::Owner&>(*this));
  raw->reader->start();
}

Task<void> MeetingHost::serve(Guest* guest) {
  std::optional<wire::Frame> frame = co_await guest->channel.receive(guest->stop);
  if (!frame) co_return;
  guest->back ? take_back(*guest, *frame) : admit(*guest, *frame);
  while ((frame = co_await guest->channel.receive(guest->stop))) {
    if (frame->type == wire::Leave::kType) {
      frame->as<wire::Leave>();
      guest->left = true;
      continue;
    }
    if (frame->type == wire::RankLost::kType) {
      heard_of_end(*guest, frame->as<wire::RankLost>());
      continue;
    }
    const auto neighbours = frame->as<wire::Neighbours>();
    if (!guest->came || !roster_) throw Error(Code::kProtocol, "it told of its neighbours before it knew them");
    firsts_[static_cast<std::size_t>(guest->said.rank)] = neighbours.first;
    changed_.set();
  }
  const bool answers = leaving_;  // the farewell is its answer to mine
  if (guest->left) co_await guest->channel.farewell(guest->stop);
  guest->left = guest->left || answers;
}

void MeetingHost::root_ended(Root& root, std::exception_ptr error) noexcept {
  if (watch_ended(root, error == nullptr)) return;
  const auto saying =
      std::find_if(sayings_.begin(), sayings_.end(), [&](const Saying& one) { return &*one.root == &root; });
  if (saying != sayings_.end()) {
    sayings_.erase(saying);
    said_.set();
    return;
  }
  const auto found = std::find_if(guests_.begin(), guests_.end(),
                                  [&](const std::shared_ptr<Guest>& one) { return &*one->reader == &root; });
  const std::shared_ptr<Guest> guest = *found;  // somebody may still speak to it
  guests_.erase(found);
  guest->stop.request(std::make_exception_ptr(Error(Code::kAborted, "the other end is gone")));
  if (guest->came) gone(*guest, error ? as_error(error).message() : "it closed its connection");
  changed_.set();
}

void MeetingHost::admit(Guest& guest, const wire::Frame& frame) {
  wire::Arrive head;
  if (frame.type == wire::Arrive::kType) {
    wire::Reader reader(frame.body, "the first message of a rank");
    reader.get(head.protocol);
    reader.get(head.version);
  }
  const int claimed = guest.said.rank;
  std::optional<Attendance::Refusal> refusal = attendance_.judge_version(head, claimed, guest.from);
  if (!refusal) {
    guest.said = frame.as<wire::Arrive>();
    if (guest.said.rank != claimed) throw Error(Code::kProtocol, "it changed its rank");
    refusal = attendance_.judge(guest.said, guest.from);
  }
  if (refusal) {
    refusal->for_all ? refuse_all(refusal->why) : remarks_.push_back(refusal->why.message());
    return refuse(guest, refusal->why);
  }
  if (failed_) return refuse(guest, *failed_);
  if (roster_ && !attendance_.knows(guest.said)) {
    const Error why(Code::kPeerFailed,
                    fmt::format("{} began anew while the job came together", Attendance::who(guest.said, guest.from)),
                    guest.said.rank);
    refuse_all(why);
    return refuse(guest, why);
  }
  ours_ += guest.said.dropped;
  has_come(guest);
}

void MeetingHost::has_come(Guest& guest) {
  replace(guest);
  guest.came = true;
  attendance_.came(guest.said, guest.from);
  no_longer_away(guest.said.rank);
  for (const std::shared_ptr<Guest>& each : guests_) {
    if (each.get() == &guest) run(tell(each));
  }
  changed_.set();
}

// Its broken connection may still look like one.
void MeetingHost::replace(const Guest& by) {
  for (const std::shared_ptr<Guest>& each : guests_) {
    if (each.get() == &by || !each->came || each->said.rank != by.said.rank) continue;
    each->came = false;
    each->stop.request(std::make_exception_ptr(Error(Code::kAborted, "the rank has come on another connection")));
  }
}

void MeetingHost::refuse(Guest& guest, const Error& why) {
  const wire::TurnedAway away{static_cast<std::int32_t>(why.code()), why.message()};
  for (const std::shared_ptr<Guest>& each : guests_) {
    if (each.get() == &guest) say(each, away);
  }
}

void MeetingHost::refuse_all(const Error& why) {
  if (failed_) return;
  failed_ = why;
  for (const std::shared_ptr<Guest>& each : guests_) {
    if (each->came) refuse(*each, why);
  }
  changed_.set();
}

template <wire::Message T>
Task<void> MeetingHost::say_one(std::shared_ptr<Guest> guest, T message) {
  co_await guest->channel.send(message, guest->stop);
}

template <wire::Message T>
void MeetingHost::say(const std::shared_ptr<Guest>& guest, const T& message) {
  run(say_one(guest, message));
}

void MeetingHost::say_waiting() {
  const wire::Waiting waiting{news()};
  for (const std::shared_ptr<Guest>& each : guests_) {
    if (each->came) say(each, waiting);
  }
}

// --- the job comes together -----------------------------------------------------------------------------------------------

// False if nothing changed.
Task<bool> MeetingHost::wait_a_second(Stop& stop) {
  Stop waiting(stop);
  const Deadline deadline(loop_, after(loop_.now(), kBetweenWords), waiting, "");
  changed_.reset();
  try {
    co_await changed_.wait(waiting);
  } catch (const Error&) {
    if (stop.requested()) throw;
    co_return false;
  }
  co_return true;
}

Task<wire::Roster> MeetingHost::gather(Stop& stop) {
  reception_->open();
  std::exception_ptr ended;
  try {
    while (attendance_.missing() > 0 && !failed_) {
      const bool changed = co_await wait_a_second(stop);
      if (!changed) say_waiting();
    }
  } catch (...) {
    ended = std::current_exception();
  }
  if (ended && as_error(ended).code() == Code::kTimeout) {
    refuse_all(Error(Code::kTimeout, too_late(limit_, news())));
  }
  if (failed_) {
    co_await wait_for_sayings(kLastWords);
    throw Error(*failed_);
  }
  if (ended) std::rethrow_exception(ended);
  roster_ = make_roster();
  door_.open(wire::Secret::from(roster_->secret), roster_->job, static_cast<int>(firsts_.size()));
  tell_all(*roster_);
  tell_all(wire::ReturnTo{door_.port()});
  co_return *roster_;
}

Task<std::vector<std::int32_t>> MeetingHost::settle(std::int32_t first, Stop& stop) {
  firsts_[0] = first;
  const auto unknown = [](const std::optional<std::int32_t>& one) { return !one.has_value(); };
  while (!failed_ && (!nobody_away() || std::any_of(firsts_.begin(), firsts_.end(), unknown))) {
    co_await wait_a_second(stop);
    give_up_waiting();
  }
  if (failed_) {
    co_await wait_for_sayings(kLastWords);
    throw Error(*failed_);
  }
  settled_ = true;
  reception_.reset();  // from now on the place is free for the next job
  wire::Settled settled;
  for (const std::optional<std::int32_t>& one : firsts_) settled.firsts.push_back(*one);
  tell_all(settled);
  check_firsts(settled.firsts, static_cast<int>(firsts_.size()));
  co_return settled.firsts;
}

std::string MeetingHost::news() const {
  std::string text = attendance_.text();
  if (const std::uint64_t count = strangers(); count > 0) {
    text += fmt::format("; {} connection{} did not prove to know the secret", count, count == 1 ? "" : "s");
  }
  for (const std::string& remark : remarks_) text += "; " + remark;
  return text;
}

wire::Roster MeetingHost::make_roster() {
  wire::Roster roster;
  entropy_.fill(std::as_writable_bytes(std::span(&roster.job, 1)));
  roster.secret = wire::Secret::fresh(entropy_).text();
  roster.ranks = attendance_.roster();
  return roster;
}

std::vector<std::string> MeetingHost::remarks() const {
  std::vector<std::string> all = remarks_;
  if (const std::uint64_t count = strangers(); count > 0) {
    all.push_back(fmt::format("{} stranger{} turned away at {}", count, count == 1 ? " was" : "s were", place_));
  }
  return all;
}

}  // namespace aiacc
