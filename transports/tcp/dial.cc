#include "transports/tcp/dial.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/io/nobody_listens.h"
#include "base/wire/sealed_stream.h"

namespace aiacc::tcp {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(10);
constexpr Duration kLongestPause = std::chrono::milliseconds(500);
constexpr Duration kLongestConnect = std::chrono::seconds(3);
constexpr Duration kLongestPatience = std::chrono::seconds(60);

bool nobody_listens(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const io::NobodyListens&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

std::string Terms::text() const {
  const wire::Bytes bytes = wire::encode(*this);
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Terms Terms::from(std::string_view text) {
  const Terms terms =
      wire::decode<Terms>(std::as_bytes(std::span(text.data(), text.size())), "the terms of a handshake");
  if (terms.protection > wire::Protection::kPoly) {
    throw Error(Code::kProtocol, fmt::format("the terms of a handshake name the unknown protection {}",
                                             static_cast<int>(terms.protection)));
  }
  if (terms.stream >= kOfClass + kClasses || terms.streams == 0 || terms.streams > TcpPort::kMostStreams) {
    throw Error(Code::kProtocol,
                fmt::format("the terms of a handshake name connection {} of {}", terms.stream, terms.streams));
  }
  return terms;
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
  began_ = unanswered_since_ = refused_since_ = shared_.loop.now();
  const std::size_t addresses = shared_.peer(rank_).addresses.size();
  for (Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    round_.emplace(shared_.loop, stop_);
    co_await try_all();
    if (round_->done || !owner_.wants(*this)) co_return;
    silent_ = round_->busy;
    const Instant now = shared_.loop.now();
    if (silent_) unanswered_since_ = now;
    const bool refused = addresses > 0 && round_->refused == addresses;
    if (!refused) refused_since_ = now;
    const Instant end = after(refused_since_, shared_.settings.refused_limit);
    if ((refused && now >= end) || given_up_) throw unreachable();
    if (silent_) patience_ = std::min(2 * patience_, kLongestPatience);
    connect_limit_ = std::min(2 * connect_limit_, kLongestConnect);
    co_await sleep_until(shared_.loop, refused ? std::min(after(now, pause), end) : after(now, pause), stop_);
    if (!owner_.wants(*this)) co_return;
  }
}

// Returns when every attempt has ended.
Task<void> Dial::try_all() {
  struct Turn final : Timer {
    explicit Turn(Event& its_event) : event(its_event) {}
    void expired() noexcept override { event.set(); }
    Event& event;
  } turn(round_->ended);
  std::vector<io::Address> addresses = shared_.peer(rank_).addresses;
  std::stable_partition(addresses.begin(), addresses.end(),
                        [&](const io::Address& address) { return !doubtful_.contains(address.text()); });
  for (const io::Address& address : addresses) {
    round_->ended.reset();
    std::optional<Root>& one = attempts_.emplace_back();
    one.emplace(shared_.loop, attempt(address), static_cast<Root::Owner&>(*this));
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

Task<void> Dial::attempt(io::Address address) {
  ++attempts_made_;
  Stage stage;
  std::string reason;
  try {
    std::unique_ptr<io::Stream> stream = co_await connect(address, round_->connecting);
    stage.silent = true;  // until it says something
    co_await converse(std::move(stream), &stage);
    if (stage.claimed && !round_->done) reason = "it waits for its own connection to this rank";
  } catch (...) {
    if (stop_.requested()) throw;
    const Error error = as_error(std::current_exception());
    if (nobody_listens(std::current_exception())) ++round_->refused;
    if (error.code() != Code::kTimeout) stage.silent = false;
    if (stage.claimed || !round_->claimed) reason = error.message();  // otherwise another was quicker
  }
  if (stage.claimed) {
    if (!stage.proved) doubtful_.insert(address.text());
    proof_sent_ = false;
    const auto over = std::make_exception_ptr(Error(Code::kAborted, "another address was the peer's"));
    if (!round_->done) round_->talking.request(over);  // it begins anew
  }
  round_->busy = round_->busy || (stage.silent && !round_->claimed);
  if (!reason.empty()) note(address, reason);
}

void Dial::note(const io::Address& address, const std::string& reason) {
  const std::string name = address.text();
  reasons_[name] = reason.find(name) == std::string::npos ? fmt::format("{}: {}", name, reason) : reason;
}

Task<std::unique_ptr<io::Stream>> Dial::connect(io::Address address, Stop& parent) {
  Stop stop(parent);
  const Deadline deadline(shared_.loop, after(shared_.loop.now(), connect_limit_), stop,
                          fmt::format("no answer within {:.1f} s", seconds(connect_limit_)));
  std::unique_ptr<io::Stream> stream = co_await shared_.net.connect(address, stop);
  co_return stream;
}

// An attempt that is not needed any more goes on to where it would prove itself and ends there, or at least says hello, so that no
// peer of this job looks like an unauthenticated peer who fell silent.
Task<void> Dial::converse(std::unique_ptr<io::Stream> stream, Stage* stage) {
  Stop stop(round_->talking);
  const Deadline deadline(shared_.loop, after(shared_.loop.now(), patience_), stop, "");
  owner_.mark(*this, *stream);
  const auto storage = std::make_unique<wire::HandshakeStorage>();
  const wire::Introduction who{wire::Purpose::kData, shared_.settings.job, shared_.settings.rank, rank_};
  wire::DialerHandshake handshake(shared_.settings.secret, who, *shared_.settings.entropy, shared_.versions());
  Stop never;  // a new connection takes a hello at once
  co_await io::write_all(*stream, handshake.hello(), never);
  const std::span<const std::byte> challenge = co_await wire::read_handshake(*stream, *storage, stop);
  stage->silent = false;
  if (round_->claimed || !owner_.wants(*this)) co_return;  // without a proof it cannot be accepted
  const std::string terms = owner_.my_terms(*this).text();
  const wire::Bytes proof = handshake.prove(challenge, terms);
  stage->claimed = round_->claimed = proof_sent_ = true;
  round_->connecting.request(std::make_exception_ptr(Error(Code::kAborted, "another address is the peer's")));
  co_await io::write_all(*stream, proof, stop);
  const std::span<const std::byte> verdict = co_await wire::read_handshake(*stream, *storage, stop);
  const wire::DialerHandshake::Conclusion conclusion = handshake.conclude(verdict);
  stage->proved = true;
  if (conclusion.verdict == wire::Verdict::kGone) {
    given_up_ = true;
    throw Error(Code::kPeerFailed, "it has given this rank up for lost");
  }
  const Terms theirs = Terms::from(conclusion.terms);
  if (conclusion.verdict == wire::Verdict::kUnlike) {
    // At once, not when the attempts at other addresses have ended: the other end knows too, and its exit would come first.
    const Error unlike = unlike_ends(shared_, rank_, theirs.protection);
    owner_.out_of_reach(*this, std::make_exception_ptr(unlike));
    throw unlike;
  }
  if (conclusion.verdict != wire::Verdict::kAccepted && owner_.wants(*this)) co_return;
  const std::optional<wire::Protection> how = wire::common(shared_.protection, theirs.protection);
  if (!how) throw Error(Code::kProtocol, "it accepted a connection of which the two ends think differently");
  round_->done = true;
  proof_sent_ = false;
  if (!owner_.wants(*this)) co_return;
  shared_.note_version(rank_, handshake.version());
  if (*how != wire::Protection::kNone) {
    const wire::SessionKeys keys = handshake.keys();
    stream =
        std::make_unique<wire::SealedStream>(shared_.loop, std::move(stream), *how, keys.to_listener, keys.to_dialer);
  }
  owner_.reached(*this, std::move(stream), theirs);
}

std::string Dial::obstacle() const {
  constexpr Duration kLasts = std::chrono::seconds(1);
  const bool unknown = reasons_.empty() && !shared_.peer(rank_).addresses.empty();
  if (silent_ || unknown || shared_.loop.now() < after(began_, kLasts)) return {};
  return unreachable().message();
}

std::string Dial::reasons() const {
  std::string text;
  for (const auto& [address, reason] : reasons_) text += (text.empty() ? "" : "; ") + reason;
  return text;
}

std::optional<BrokenPath> Dial::broken_path() const {
  if (silent_) return std::nullopt;
  const auto end = [this](int rank) {
    std::string addresses;
    for (const io::Address& address : shared_.peer(rank).addresses) {
      addresses += (addresses.empty() ? " (" : ", ") + address.text();
    }
    return shared_.name(rank) + addresses + (addresses.empty() ? "" : ")");
  };
  const auto [lower, higher] = std::minmax(shared_.settings.rank, rank_);
  const bool no_address = shared_.peer(rank_).addresses.empty();
  return BrokenPath{unanswered_since_, fmt::format("{} and {}", end(lower), end(higher)),
                    no_address ? "no address of the other one is known, and it does not connect" : reasons()};
}

Error unlike_ends(const Shared& shared, int other, wire::Protection others) {
  const wire::Protection mine = shared.protection;
  const std::string& my_name = shared.name(shared.settings.rank);
  const std::string& their_name = shared.name(other);
  const bool both = mine != wire::Protection::kNone && others != wire::Protection::kNone;
  // Of two that protect their messages, the one that encrypts is named first.
  const bool me_first = both ? mine == wire::Protection::kEncrypted : mine != wire::Protection::kNone;
  const wire::Protection firsts = me_first ? mine : others;
  return Error(Code::kMismatch,
               fmt::format("{} {} its messages and {} {}: give AIACC_ENCRYPT the same value on all ranks",
                           me_first ? my_name : their_name,
                           firsts == wire::Protection::kEncrypted ? "encrypts" : "authenticates",
                           me_first ? their_name : my_name, both ? "only authenticates them" : "does not"),
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
  return Error(Code::kPeerFailed,
               fmt::format("{} cannot reach {} ({} attempts in {:.1f} s): {}", mine, theirs, attempts_made_,
                           seconds(shared_.loop.now() - began_), reasons()),
               rank_);
}

}  // namespace aiacc::tcp
