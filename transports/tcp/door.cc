#include "transports/tcp/door.h"

#include <fmt/format.h>

namespace aiacc::tcp {
namespace {

constexpr Duration kAfterFailure = std::chrono::milliseconds(100);  // of accept(): no descriptors are left, perhaps

}  // namespace

Door::Door(Shared& shared, DoorOwner& owner, std::unique_ptr<io::Listener> listener)
    : shared_(shared), owner_(owner), left_(shared.loop), listener_(std::move(listener)) {}

Door::~Door() { close(); }

void Door::open() {
  if (acceptor_) return;
  acceptor_.emplace(shared_.loop, accept_all(), static_cast<Root::Owner&>(*this));
  acceptor_->start();
}

void Door::close() noexcept {
  const auto why = std::make_exception_ptr(Error(Code::kAborted, "this port is closed"));
  stop_.request(why);
  for (Greeting& greeting : greetings_) greeting.stop.request(why);
}

void Door::root_ended(Root& root, std::exception_ptr) noexcept {
  greetings_.remove_if([&](const Greeting& greeting) { return greeting.root && &*greeting.root == &root; });
  left_.set();
}

Task<void> Door::accept_all() {
  for (;;) {
    std::unique_ptr<io::Stream> stream;
    try {
      stream = co_await listener_->accept(stop_);
    } catch (...) {
      if (stop_.requested()) throw;
    }
    if (stream == nullptr) {
      co_await sleep_for(shared_.loop, kAfterFailure, stop_);
      continue;
    }
    admit(std::move(stream));
    while (greetings_.size() > kMostGreetings) {
      left_.reset();
      co_await left_.wait(stop_);
    }
  }
}

void Door::admit(std::unique_ptr<io::Stream> stream) {
  if (greetings_.size() >= kMostGreetings) {
    greetings_.front().stop.request(
        std::make_exception_ptr(Error(Code::kAborted, "too many connections are waiting to prove themselves")));
  }
  Greeting& greeting = greetings_.emplace_back();
  greeting.root.emplace(shared_.loop, greet(&greeting, std::move(stream)), static_cast<Root::Owner&>(*this));
  greeting.root->start();
}

Task<void> Door::greet(Greeting* self, std::unique_ptr<io::Stream> stream) {
  bool stranger = true;
  try {
    co_await converse(self, std::move(stream), &stranger);
  } catch (const Error& error) {
    // Late, or dropped for others, whoever it is.
    if (error.code() == Code::kTimeout || error.code() == Code::kAborted) stranger = true;
  } catch (...) {
  }
  if (stranger && !shared_.closed) ++shared_.refused;
}

// `stranger` is false where a rank of this job ends the conversation itself: its dial met ours.
Task<void> Door::converse(Greeting* self, std::unique_ptr<io::Stream> stream, bool* stranger) {
  Stop stop(self->stop);
  const Deadline deadline(shared_.loop, after(shared_.loop.now(), wire::kHandshakeLimit), stop,
                          "the handshake was not finished in time");
  const auto storage = std::make_unique<wire::HandshakeStorage>();
  const wire::ListenerHandshake::Expected expected{wire::Purpose::kData, shared_.settings.job, shared_.settings.rank,
                                                   shared_.size()};
  wire::ListenerHandshake handshake(shared_.settings.secret, expected, *shared_.settings.entropy);

  const std::span<const std::byte> hello = co_await wire::read_handshake(*stream, *storage, stop);
  const wire::ListenerHandshake::Answer answer = handshake.answer(hello);
  *stranger = answer.refused;
  co_await io::write_all(*stream, answer.frame, stop);
  if (answer.refused) co_return;

  const std::span<const std::byte> proof = co_await wire::read_handshake(*stream, *storage, stop);
  *stranger = true;
  const Terms theirs = Terms::from(handshake.check(proof));
  *stranger = false;

  const int rank = handshake.who().from;
  const wire::Verdict verdict = owner_.judge(rank, theirs);
  wire::Bytes frame = handshake.decide(verdict, owner_.terms_for(rank).text());
  if (verdict == wire::Verdict::kAccepted) {
    owner_.let_in(rank, std::move(stream), theirs, std::move(frame));
  } else {
    co_await io::write_all(*stream, frame, stop);
  }
}

}  // namespace aiacc::tcp
