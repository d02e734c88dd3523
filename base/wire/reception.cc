#include "base/wire/reception.h"

#include <utility>

namespace aiacc::wire {
namespace {

constexpr Duration kAfterFailure = std::chrono::milliseconds(100);  // of accept(): no descriptors are left, perhaps

}  // namespace

Reception::Reception(Loop& loop, Owner& owner, std::unique_ptr<io::Listener> listener)
    : loop_(loop), owner_(owner), left_(loop), listener_(std::move(listener)) {}

Reception::~Reception() { close(); }

void Reception::open() {
  if (acceptor_) return;
  acceptor_.emplace(loop_, accept_all(), static_cast<Root::Owner&>(*this));
  acceptor_->start();
}

void Reception::close() noexcept {
  closed_ = true;
  const auto why = std::make_exception_ptr(Error(Code::kAborted, "nobody is received any more"));
  stop_.request(why);
  for (Greeting& greeting : greetings_) greeting.stop.request(why);
}

void Reception::root_ended(Root& root, std::exception_ptr) noexcept {
  greetings_.remove_if([&](const Greeting& greeting) { return greeting.root && &*greeting.root == &root; });
  left_.set();
}

Task<void> Reception::accept_all() {
  for (;;) {
    std::unique_ptr<io::Stream> stream;
    try {
      stream = co_await listener_->accept(stop_);
    } catch (...) {
      if (stop_.requested()) throw;
    }
    if (stream == nullptr) {
      co_await sleep_for(loop_, kAfterFailure, stop_);
      continue;
    }
    admit(std::move(stream));
    while (greetings_.size() > kMostGreetings) {
      left_.reset();
      co_await left_.wait(stop_);
    }
  }
}

void Reception::admit(std::unique_ptr<io::Stream> stream) {
  if (greetings_.size() >= kMostGreetings) {
    greetings_.front().stop.request(
        std::make_exception_ptr(Error(Code::kAborted, "too many connections are waiting to prove themselves")));
  }
  Greeting& greeting = greetings_.emplace_back();
  greeting.root.emplace(loop_, greet(&greeting, std::move(stream)), static_cast<Root::Owner&>(*this));
  greeting.root->start();
}

Task<void> Reception::greet(Greeting* self, std::unique_ptr<io::Stream> stream) {
  bool stranger = true;
  try {
    Stop stop(self->stop);
    const Deadline deadline(loop_, after(loop_.now(), kHandshakeLimit), stop, "the handshake was not finished in time");
    co_await owner_.greet(std::move(stream), &stranger, stop);
  } catch (const Error& error) {
    // Late, whoever it is. Who was dropped for others in the middle of a good conversation may be ours, and comes again.
    if (error.code() == Code::kTimeout) stranger = true;
  } catch (...) {
  }
  if (stranger && !closed_) owner_.turned_away();
}

}  // namespace aiacc::wire
