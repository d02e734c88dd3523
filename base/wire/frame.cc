#include "base/wire/frame.h"

#include <fmt/format.h>

namespace aiacc::wire {

std::string Frame::name() const { return fmt::format("a message of type {}", type); }

void Frame::refuse_type(std::uint16_t expected) const {
  throw Error(
      Code::kProtocol,
      fmt::format("a message of type {} came where one of type {} is due; do both ends run the same version of aiacc?",
                  type, expected));
}

void finish_frame(Bytes& bytes, std::uint16_t type) {
  const std::size_t length = bytes.size() - sizeof(std::uint32_t);
  if (length > kLargestFrameBytes) {
    throw Error(Code::kInvalidArgument,
                fmt::format("a message of {} bytes is too long to be sent; {} is the most (a very large "
                            "environment or argument list?)",
                            length, kLargestFrameBytes));
  }
  Bytes header;
  Writer writer(header);
  writer.put(static_cast<std::uint32_t>(length));
  writer.put(type);
  std::copy(header.begin(), header.end(), bytes.begin());
}

namespace {

struct Header {
  std::uint32_t length = 0;  // length of the type and the body
  std::uint16_t type = 0;
  std::size_t body_bytes() const noexcept { return length - sizeof type; }
};

Header parse_header(std::span<const std::byte> bytes, std::uint32_t limit) {
  Header header;
  Reader reader(bytes, "a frame");
  reader.get(header.length);
  reader.get(header.type);
  if (header.length < sizeof header.type || header.length > limit) {
    throw Error(Code::kProtocol,
                fmt::format("a frame announces {} bytes; {} to {} are possible: the other end does not speak "
                            "this protocol",
                            header.length, sizeof header.type, limit));
  }
  return header;
}

}  // namespace

Task<std::optional<Frame>> read_frame(io::Stream& stream, std::uint32_t limit, Stop& stop) {
  constexpr std::size_t kStepBytes = 64 * 1024;
  std::array<std::byte, kFrameHeaderBytes> head;
  const bool any = co_await io::read_exactly(stream, head, stop);
  if (!any) co_return std::nullopt;
  const Header header = parse_header(head, limit);
  Frame frame;
  frame.type = header.type;
  while (frame.body.size() < header.body_bytes()) {
    const std::size_t have = frame.body.size();
    frame.body.resize(std::min(have + std::max(have, kStepBytes), header.body_bytes()));
    const std::span<std::byte> step = std::span(frame.body).subspan(have);
    const bool more = co_await io::read_exactly(stream, step, stop);
    if (!more) throw Error(Code::kProtocol, fmt::format("{} closed in the middle of a message", stream.describe()));
  }
  co_return frame;
}

std::span<std::byte> FrameBuffer::space() {
  if (begin_ > 0) {  // moves unread bytes to the front
    std::copy(storage_.begin() + static_cast<std::ptrdiff_t>(begin_),
              storage_.begin() + static_cast<std::ptrdiff_t>(end_), storage_.begin());
    wipe(storage_.data() + (end_ - begin_), begin_);  // the old copy of the moved bytes
    end_ -= begin_;
    begin_ = 0;
  }
  if (storage_.size() < end_ + kReadBytes) storage_.resize(end_ + kReadBytes);
  return std::span(storage_).subspan(end_);
}

std::optional<Frame> FrameBuffer::next() {
  const std::span<const std::byte> have(storage_.data() + begin_, end_ - begin_);
  if (have.size() < kFrameHeaderBytes) return std::nullopt;
  const Header header = parse_header(have.first(kFrameHeaderBytes), limit_);
  const std::size_t whole = kFrameHeaderBytes + header.body_bytes();
  if (have.size() < whole) return std::nullopt;
  Frame frame;
  frame.type = header.type;
  frame.body.assign(have.begin() + kFrameHeaderBytes, have.begin() + static_cast<std::ptrdiff_t>(whole));
  wipe(storage_.data() + begin_, whole);  // the frame may have been a secret
  begin_ += whole;
  return frame;
}

}  // namespace aiacc::wire
