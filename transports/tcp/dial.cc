#include "transports/tcp/dial.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/wire/sealed_stream.h"

namespace aiacc::tcp {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(10);
constexpr Duration kLongestPause = std::chrono::milliseconds(500);
constexpr Duration kLongestConnect = std::chrono::seconds(3);
constexpr Duration kLongestPatience = std::chrono::seconds(60);

}  // namespace

std::string Terms::text() const {
  const wire::Bytes bytes = wire::encode(*this);
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Terms Terms::from(std::string_view text) {
  return wire::decode<Terms>(std::as_bytes(std::span(text.data(), text.size())), "the terms of a handshake");
}

Dial::~Dial() { stop(); }

void Dial::start() {
  root_.emplace(shared_.loop, run(), static_cast<Root::Owner&>(*this));
  root_->start();
}

void Dial::stop() noexcept {
  stop_.request(std::make_exception_ptr(Error(Code::kAborted, "this connection is not needed any more")));
}

void Dial::root_ended(Root& root, std::exception_ptr error) noexcept {
  if (&root != &*root_) {
    attempts_.remove_if([&](const std::optional<Root>& one) { return one && &*one == &root; });
    round_->ended.set();
    return;
  }
  if (error && !stop_.requested()) owner_.out_of_reach(*this, std::move(error));
  owner_.dial_ended(*this);
}

Task<void> Dial::run() {
  began_ = shared_.loop.now();
  const Instant end = after(began_, shared_.settings.connect_limit);
  for (Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    round_.emplace(shared_.loop, stop_);
    co_await try_all(std::max(end, shared_.loop.now()));
    if (unlike_) throw *unlike_;
    if (round_->done || !owner_.wants(*this)) co_return;
    silent_ = round_->busy;
    const Instant now = shared_.loop.now();
    if ((now >= end && !silent_) || given_up_) throw unreachable();
    if (silent_) patience_ = std::min(2 * patience_, kLongestPatience);
    connect_limit_ = std::min(2 * connect_limit_, kLongestConnect);
    const Instant next = after(now, pause);
    co_await sleep_until(shared_.loop, now < end ? std::min(next, end) : next, stop_);
    if (!owner_.wants(*this)) co_return;
  }
}

// Returns when every attempt has ended.
Task<void> Dial::try_all(Instant end) {
  struct Turn final : Timer {
    explicit Turn(Event& its_event) : event(its_event) {}
    void expired() noexcept override { event.set(); }
    Event& event;
  } turn(round_->ended);
  const std::vector<io::Address>& addresses = shared_.peer(rank_).addresses;
  for (const io::Address& address : addresses) {
    round_->ended.reset();
    std::optional<Root>& one = attempts_.emplace_back();
    one.emplace(shared_.loop, attempt(address, end), static_cast<Root::Owner&>(*this));
    one->start();
    if (&address == &addresses.back() || round_->claimed || !owner_.wants(*this)) break;
    shared_.loop.arm(turn, after(shared_.loop.now(), kStagger));
    co_await round_->ended.wait(stop_);
    turn.disarm();
    if (round_->claimed || !owner_.wants(*this)) break;
  }
  while (!attempts_.empty()) {
    round_->ended.reset();
    co_await round_->ended.wait(stop_);
  }
}

Task<void> Dial::attempt(io::Address address, Instant end) {
  ++attempts_made_;
  bool claimed = false;
  bool silent = false;
  std::string reason;
  try {
    std::unique_ptr<io::Stream> stream = co_await connect(address, end, round_->connecting);
    silent = true;  // until it says something
    co_await converse(std::move(stream), &claimed, &silent);
    if (claimed && !round_->done) reason = "it waits for its own connection to this rank";
  } catch (...) {
    if (stop_.requested()) throw;
    const Error error = as_error(std::current_exception());
    if (error.code() != Code::kTimeout) silent = false;
    if (claimed || !round_->claimed) reason = error.message();  // otherwise another was quicker
  }
  if (claimed) {
    proof_sent_ = false;
    const auto over = std::make_exception_ptr(Error(Code::kAborted, "another address was the peer's"));
    if (!round_->done) round_->talking.request(over);  // it begins anew
  }
  round_->busy = round_->busy || (silent && !round_->claimed);
  if (!reason.empty()) note(address, reason);
}

void Dial::note(const io::Address& address, const std::string& reason) {
  const std::string name = address.text();
  reasons_[name] = reason.find(name) == std::string::npos ? fmt::format("{}: {}", name, reason) : reason;
}

Task<std::unique_ptr<io::Stream>> Dial::connect(io::Address address, Instant end, Stop& parent) {
  Stop stop(parent);
  const Duration left = std::max(end - shared_.loop.now(), Duration(std::chrono::milliseconds(1)));
  const Duration limit = std::min(left, connect_limit_);
  const Deadline deadline(shared_.loop, after(shared_.loop.now(), limit), stop,
                          fmt::format("no answer within {:.1f} s", seconds(limit)));
  std::unique_ptr<io::Stream> stream = co_await shared_.net.connect(address, stop);
  co_return stream;
}

// An attempt that is not needed any more goes on to where it would prove itself and ends there, so that no peer of this job
// looks like a stranger who fell silent.
Task<void> Dial::converse(std::unique_ptr<io::Stream> stream, bool* claimed, bool* silent) {
  Stop stop(round_->talking);
  const Deadline deadline(shared_.loop, after(shared_.loop.now(), patience_), stop, "");
  const auto storage = std::make_unique<wire::HandshakeStorage>();
  const wire::Introduction who{wire::Purpose::kData, shared_.settings.job, shared_.settings.rank, rank_};
  wire::DialerHandshake handshake(shared_.settings.secret, who, *shared_.settings.entropy);
  co_await io::write_all(*stream, handshake.hello(), stop);
  const std::span<const std::byte> challenge = co_await wire::read_handshake(*stream, *storage, stop);
  *silent = false;
  if (round_->claimed || !owner_.wants(*this)) co_return;  // without a proof it cannot be accepted
  const std::string terms = owner_.my_terms().text();
  const wire::Bytes proof = handshake.prove(challenge, terms);
  *claimed = round_->claimed = proof_sent_ = true;
  round_->connecting.request(std::make_exception_ptr(Error(Code::kAborted, "another address is the peer's")));
  co_await io::write_all(*stream, proof, stop);
  const std::span<const std::byte> verdict = co_await wire::read_handshake(*stream, *storage, stop);
  const wire::DialerHandshake::Conclusion conclusion = handshake.conclude(verdict);
  if (conclusion.verdict == wire::Verdict::kGone) {
    given_up_ = true;
    throw Error(Code::kPeerFailed, "it has given this rank up for lost");
  }
  const Terms theirs = Terms::from(conclusion.terms);
  if (conclusion.verdict == wire::Verdict::kUnlike) {
    unlike_ = unlike_ends(shared_, rank_, theirs.encrypts);
    throw *unlike_;
  }
  if (conclusion.verdict != wire::Verdict::kAccepted && owner_.wants(*this)) co_return;
  round_->done = true;
  proof_sent_ = false;
  if (!owner_.wants(*this)) co_return;
  if (shared_.encrypts) {
    const wire::SessionKeys keys = handshake.keys();
    stream = std::make_unique<wire::SealedStream>(shared_.loop, std::move(stream), keys.to_listener, keys.to_dialer);
  }
  owner_.reached(*this, std::move(stream), theirs);
}

std::string Dial::obstacle() const {
  constexpr Duration kLasts = std::chrono::seconds(1);
  const bool unknown = reasons_.empty() && !shared_.peer(rank_).addresses.empty();
  if (silent_ || unknown || shared_.loop.now() < after(began_, kLasts)) return {};
  return unreachable().message();
}

Error unlike_ends(const Shared& shared, int other, bool other_encrypts) {
  const std::string& mine = shared.name(shared.settings.rank);
  const std::string& theirs = shared.name(other);
  return Error(Code::kMismatch,
               fmt::format("{} encrypts its messages and {} does not: give AIACC_ENCRYPT the same value on all ranks",
                           other_encrypts ? theirs : mine, other_encrypts ? mine : theirs),
               other);
}

Error Dial::unreachable() const {
  const std::string& mine = shared_.name(shared_.settings.rank);
  const std::string& theirs = shared_.name(rank_);
  if (reasons_.empty()) {
    return Error(Code::kPeerFailed,
                 fmt::format("{} knows no address of {}, which did not connect within {:.1f} s either", mine, theirs,
                             seconds(shared_.loop.now() - began_)),
                 rank_);
  }
  std::string text = fmt::format("{} cannot reach {} ({} attempts in {:.1f} s)", mine, theirs, attempts_made_,
                                 seconds(shared_.loop.now() - began_));
  const char* separator = ": ";
  for (const auto& [address, reason] : reasons_) {
    text += separator + reason;
    separator = "; ";
  }
  return Error(Code::kPeerFailed, text, rank_);
}

}  // namespace aiacc::tcp
