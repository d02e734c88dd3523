#include "launcher/channel/frames.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/io/descriptor_passing.h"

namespace aiacc::launcher {

Task<std::optional<wire::Frame>> FrameReader::next(Stop& stop) {
  for (;;) {
    std::optional<wire::Frame> frame = buffer_.next();
    if (frame) co_return frame;
    const std::size_t got = co_await from_.read_some(buffer_.space(), stop);
    if (got == 0 && buffer_.pending() == 0) co_return std::nullopt;
    if (got == 0) throw Error(Code::kProtocol, from_.describe() + " ended in the middle of a message");
    buffer_.commit(got);
  }
}

void FrameReader::feed(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::span<std::byte> space = buffer_.space();
    const std::size_t some = std::min(space.size(), bytes.size());
    std::copy_n(bytes.begin(), some, space.begin());
    buffer_.commit(some);
    bytes = bytes.subspan(some);
  }
}

void FrameSender::send_text(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  enqueue(wire::Bytes(bytes.begin(), bytes.end()), nullptr);
}

void FrameSender::enqueue(wire::Bytes bytes, std::shared_ptr<const Fd> descriptor) {
  if (broken_) return;
  queue_.push_back({std::move(bytes), std::move(descriptor)});
  idle_.reset();
  changed_.set();
}

void FrameSender::discard() noexcept {
  broken_ = true;
  queue_.clear();
  idle_.set();
  changed_.set();
}

Task<void> FrameSender::run(Stop& stop) {
  try {
    while (!broken_) {
      while (!queue_.empty()) {
        const Item item = std::move(queue_.front());
        queue_.pop_front();
        std::span<const std::byte> left = item.bytes;
        if (item.descriptor != nullptr) {
          const std::size_t sent = co_await io::send_descriptor(to_, left, item.descriptor->get(), stop);
          left = left.subspan(sent);
        }
        co_await io::write_all(to_, left, stop);
      }
      idle_.set();
      if (closing_) co_return;
      changed_.reset();
      co_await changed_.wait(stop);
    }
  } catch (const Error&) {
    if (stop.requested()) throw;
    discard();
  }
}

}  // namespace aiacc::launcher
