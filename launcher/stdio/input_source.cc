#include "launcher/stdio/input_source.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "base/io/terminal.h"

namespace aiacc::launcher {

namespace {

constexpr std::size_t kLargestRead = 64 * 1024;
// Polled, because a shell that brings a running job to the foreground sends no signal.
constexpr Duration kForegroundLook = std::chrono::milliseconds(500);

}  // namespace

void InputSource::close() noexcept {
  closed_ = true;
  if (reading_ != nullptr) reading_->request(std::make_exception_ptr(Error(Code::kAborted, "nobody reads the input")));
}

Task<void> InputSource::run(Stop& stop) {
  if (closed_) co_return;
  Stop reading(stop);
  reading_ = &reading;
  std::optional<Error> failure;
  try {
    co_await read(reading);
  } catch (const Error& error) {
    if (!closed_) failure = error;
  }
  reading_ = nullptr;
  stop.throw_if_requested();
  if (!failure) co_return;
  owner_.input_read({});
  owner_.input_failed(*failure);
}

Task<void> InputSource::read(Stop& stop) {
  std::vector<std::byte> buffer;
  for (;;) {
    while (credit_ == 0) {
      changed_.reset();
      co_await changed_.wait(stop);
    }
    buffer.resize(kLargestRead);
    const auto space = std::span(buffer).first(std::min<std::uint64_t>(credit_, buffer.size()));
    const std::size_t got = co_await from_.read_some(space, stop);
    if (got == 0 && io::in_background(from_.descriptor())) {
      co_await sleep_for(loop_, kForegroundLook, stop);
      continue;
    }
    credit_ -= got;
    owner_.input_read(std::string(reinterpret_cast<const char*>(buffer.data()), got));
    if (got == 0) co_return;
  }
}

}  // namespace aiacc::launcher
