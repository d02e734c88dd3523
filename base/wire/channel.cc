#include "base/wire/channel.h"

#include <fcntl.h>
#include <fmt/format.h>

#include "base/io/descriptor_passing.h"
#include "base/io/limits.h"

namespace aiacc::wire {

// One coroutine writes at a time; this guard notifies the waiting senders when it ends.
class Channel::WriterRole {
 public:
  explicit WriterRole(Channel& channel) noexcept : channel_(channel) { channel_.writing_ = true; }
  ~WriterRole() {
    channel_.writing_ = false;
    channel_.writer_left_.set();
    channel_.writer_left_.reset();
  }
  WriterRole(const WriterRole&) = delete;
  WriterRole& operator=(const WriterRole&) = delete;

 private:
  Channel& channel_;
};

Channel::Channel(Loop& loop, std::unique_ptr<io::Stream> stream, std::uint32_t limit)
    : stream_(std::move(stream)), incoming_(limit), writer_left_(loop) {}

Fd Channel::copy_of(int descriptor) {
  return Fd(
      io::checked_descriptor(fcntl(descriptor, F_DUPFD_CLOEXEC, 4), "cannot copy a descriptor that is to be sent"));
}

// The frame is queued when the task starts, that is, when it is awaited.
Task<void> Channel::send_frame(Bytes frame, Fd descriptor, Stop& stop) {
  stop.throw_if_requested();
  outgoing_.push_back({std::move(frame), 0, std::move(descriptor)});
  const std::uint64_t mine = ++queued_frames_;
  while (sent_frames_ < mine) {
    if (writing_) {
      co_await writer_left_.wait(stop);
    } else {
      co_await write_front(stop);
    }
  }
}

Task<void> Channel::write_front(Stop& stop) {
  const WriterRole role(*this);
  Outgoing& front = outgoing_.front();  // stays valid: a deque does not move it when others are appended
  while (front.sent < front.bytes.size()) {
    const std::span<const std::byte> rest = std::span(front.bytes).subspan(front.sent);
    if (front.descriptor) {
      front.sent += co_await io::send_descriptor(*stream_, rest, front.descriptor.get(), stop);
      front.descriptor.reset();
    } else {
      front.sent += co_await stream_->write_some(rest, stop);
    }
  }
  outgoing_.pop_front();
  ++sent_frames_;
}

Task<std::optional<Frame>> Channel::receive(Stop& stop) {
  for (;;) {
    std::optional<Frame> frame = incoming_.next();
    if (frame) co_return frame;
    const std::span<std::byte> space = incoming_.space();
    const std::size_t moved = co_await stream_->read_some(space, stop);
    incoming_.commit(moved);
    if (moved > 0) continue;
    if (incoming_.pending() == 0) co_return std::nullopt;
    throw Error(Code::kProtocol, fmt::format("{} closed in the middle of a message, {} bytes into it",
                                             stream_->describe(), incoming_.pending()));
  }
}

}  // namespace aiacc::wire
