#include "transports/tcp/dial.h"

#include <fmt/format.h>

#include <algorithm>

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

void Dial::root_ended(Root&, std::exception_ptr error) noexcept {
  if (error && !stop_.requested()) owner_.out_of_reach(*this, std::move(error));
  owner_.dial_ended(*this);
}

Task<void> Dial::run() {
  const Instant began = shared_.loop.now();
  const Instant end = after(began, shared_.settings.connect_limit);
  const std::vector<io::Address>& addresses = shared_.peer(rank_).addresses;
  for (Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    bool busy = false;
    for (const io::Address& address : addresses) {
      const bool done = co_await attempt(address, std::max(end, shared_.loop.now()));
      if (done || !owner_.wants(*this)) co_return;
      busy = busy || busy_;
    }
    const Instant now = shared_.loop.now();
    if ((now >= end && !busy) || given_up_) throw unreachable(began);
    if (busy) patience_ = std::min(2 * patience_, kLongestPatience);
    connect_limit_ = std::min(2 * connect_limit_, kLongestConnect);
    const Instant next = after(now, pause);
    co_await sleep_until(shared_.loop, now < end ? std::min(next, end) : next, stop_);
    if (!owner_.wants(*this)) co_return;
  }
}

// True if nothing is left to be done; otherwise the reason is noted.
Task<bool> Dial::attempt(io::Address address, Instant end) {
  ++attempts_;
  busy_ = false;
  std::string reason;
  try {
    std::unique_ptr<io::Stream> stream = co_await connect(address, end);
    Stop stop(stop_);
    const Deadline deadline(shared_.loop, after(shared_.loop.now(), patience_), stop, "");
    busy_ = true;  // until it says something
    Terms theirs;
    const bool accepted = co_await converse(*stream, theirs, stop);
    proof_sent_ = false;
    if (!owner_.wants(*this)) co_return true;
    if (accepted) {
      owner_.reached(*this, std::move(stream), theirs);
      co_return true;
    }
    reason = "it waits for its own connection to this rank";
  } catch (...) {
    proof_sent_ = false;
    if (stop_.requested()) throw;
    if (as_error(std::current_exception()).code() != Code::kTimeout) busy_ = false;
    reason = as_error(std::current_exception()).message();
  }
  const std::string name = address.text();
  reasons_[name] = reason.find(name) == std::string::npos ? fmt::format("{}: {}", name, reason) : reason;
  co_return false;
}

Task<std::unique_ptr<io::Stream>> Dial::connect(io::Address address, Instant end) {
  Stop stop(stop_);
  const Duration left = std::max(end - shared_.loop.now(), Duration(std::chrono::milliseconds(1)));
  const Duration limit = std::min(left, connect_limit_);
  const Deadline deadline(shared_.loop, after(shared_.loop.now(), limit), stop,
                          fmt::format("no answer within {:.1f} s", seconds(limit)));
  std::unique_ptr<io::Stream> stream = co_await shared_.net.connect(address, stop);
  co_return stream;
}

Task<bool> Dial::converse(io::Stream& stream, Terms& theirs, Stop& stop) {
  const auto storage = std::make_unique<wire::HandshakeStorage>();
  const wire::Introduction who{wire::Purpose::kData, shared_.settings.job, shared_.settings.rank, rank_};
  wire::DialerHandshake handshake(shared_.settings.secret, who, *shared_.settings.entropy);
  co_await io::write_all(stream, handshake.hello(), stop);
  const std::span<const std::byte> challenge = co_await wire::read_handshake(stream, *storage, stop);
  busy_ = false;
  if (!owner_.wants(*this)) co_return false;  // without a proof it cannot be accepted
  const std::string terms = owner_.my_terms().text();
  const wire::Bytes proof = handshake.prove(challenge, terms);
  proof_sent_ = true;
  co_await io::write_all(stream, proof, stop);
  const std::span<const std::byte> verdict = co_await wire::read_handshake(stream, *storage, stop);
  const wire::DialerHandshake::Conclusion conclusion = handshake.conclude(verdict);
  if (conclusion.verdict == wire::Verdict::kGone) {
    given_up_ = true;
    throw Error(Code::kPeerFailed, "it has given this rank up for lost");
  }
  theirs = Terms::from(conclusion.terms);
  co_return conclusion.verdict == wire::Verdict::kAccepted;
}

Error Dial::unreachable(Instant began) const {
  const std::string& mine = shared_.name(shared_.settings.rank);
  const std::string& theirs = shared_.name(rank_);
  if (reasons_.empty()) {
    return Error(Code::kPeerFailed,
                 fmt::format("{} knows no address of {}, which did not connect within {:.1f} s either", mine, theirs,
                             seconds(shared_.loop.now() - began)),
                 rank_);
  }
  std::string text = fmt::format("{} cannot reach {} ({} attempts in {:.1f} s)", mine, theirs, attempts_,
                                 seconds(shared_.loop.now() - began));
  const char* separator = ": ";
  for (const auto& [address, reason] : reasons_) {
    text += separator + reason;
    separator = "; ";
  }
  return Error(Code::kPeerFailed, text, rank_);
}

}  // namespace aiacc::tcp
