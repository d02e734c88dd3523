#include "launcher/stdio/input_feed.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "base/wire/launch_messages.h"

namespace aiacc::launcher {

namespace {

constexpr std::uint64_t kCreditSteps = 8;  // credit is returned in this many parts

}  // namespace

void InputFeed::add(const std::string& bytes) {
  if (bytes.size() > credit_ || at_end_) {
    throw Error(Code::kProtocol, fmt::format("aiaccrun sent {} bytes of input with a credit of {}", bytes.size(),
                                             at_end_ ? 0 : credit_));
  }
  credit_ -= bytes.size();
  if (bytes.empty()) at_end_ = true;
  if (!closed_) waiting_ += bytes;
  changed_.set();
}

void InputFeed::close() noexcept {
  closed_ = true;
  if (writing_ != nullptr) writing_->request(std::make_exception_ptr(Error(Code::kAborted, "the rank has ended")));
}

Task<void> InputFeed::run(Stop& stop) {
  Stop writing(stop);
  writing_ = &writing;
  try {
    if (!closed_) co_await write(writing);
  } catch (const Error&) {
    closed_ = true;  // the rank has closed its standard input, which is no error
  }
  writing_ = nullptr;
  to_.reset();
  waiting_ = {};
  stop.throw_if_requested();
  if (!closed_) co_return;
  wire::InputClosed message;
  head_.send(message);
}

Task<void> InputFeed::write(Stop& stop) {
  return_credit(kWindow);
  for (;;) {
    const std::string batch = std::exchange(waiting_, {});
    for (auto left = std::as_bytes(std::span(batch)); !left.empty();) {
      const std::size_t moved = co_await to_->write_some(left, stop);
      left = left.subspan(moved);
      return_credit(moved);
    }
    if (!waiting_.empty()) continue;
    if (at_end_) co_return;
    changed_.reset();
    co_await changed_.wait(stop);
  }
}

void InputFeed::return_credit(std::size_t bytes) {
  unreturned_credit_ += bytes;
  if (unreturned_credit_ < kWindow / kCreditSteps) return;
  wire::InputCredit message;
  message.bytes = std::exchange(unreturned_credit_, 0);
  credit_ += message.bytes;
  head_.send(message);
}

}  // namespace aiacc::launcher
