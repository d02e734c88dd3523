// Fuzzes the decoders of data frames and headers. Any input throws kProtocol or decodes to what encodes to the same bytes.
//
// Built on request: `make data_header_fuzz`; see agent_messages_fuzz.cc.
#include <algorithm>
#include <cstdlib>

#include "tests/fuzz/driver.h"
#include "transports/tcp/data_header.h"
#include "transports/tcp/frame.h"

namespace aiacc::tcp {
namespace {

void feed(std::span<const std::byte> bytes) {
  while (bytes.size() >= kFrameBytes) {
    const Frame frame = decode_frame(bytes.first<kFrameBytes>());
    std::array<std::byte, kFrameBytes> same;
    encode_frame(frame, same);
    if (!std::equal(same.begin(), same.end(), bytes.begin())) std::abort();
    bytes = bytes.subspan(kFrameBytes);
    if (frame.kind != FrameKind::kMessage || bytes.size() < kHeaderBytes) continue;
    const MessageHeader header = decode_header(bytes.first<kHeaderBytes>());
    std::array<std::byte, kHeaderBytes> again;
    encode_header(header, again);
    if (!std::equal(again.begin(), again.end(), bytes.begin())) std::abort();
    bytes = bytes.subspan(kHeaderBytes);
  }
}

wire::Bytes seed(const Frame& frame) {
  wire::Bytes bytes(kFrameBytes);
  encode_frame(frame, std::span(bytes).first<kFrameBytes>());
  return bytes;
}

wire::Bytes seed(const MessageHeader& header) {
  wire::Bytes bytes = seed(Frame{.traffic = header.traffic, .number = 1, .length = header.length});
  bytes.resize(kFrameBytes + kHeaderBytes);
  encode_header(header, std::span(bytes).last<kHeaderBytes>());
  return bytes;
}

}  // namespace
}  // namespace aiacc::tcp

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  try {
    aiacc::tcp::feed(std::as_bytes(std::span(data, bytes)));
  } catch (const aiacc::Error& error) {
    if (error.code() != aiacc::Code::kProtocol) std::abort();
  }
  return 0;
}

std::vector<aiacc::wire::Bytes> fuzz_seeds() {
  using namespace aiacc;
  MessageHeader eager;
  eager.group = 0x0123456789abcdef;
  eager.length = eager.total = 100;
  MessageHeader data = eager;
  data.kind = MessageKind::kData;
  data.offset = 1 << 20;
  return {tcp::seed(eager), tcp::seed(data),
          tcp::seed(tcp::Frame{.kind = tcp::FrameKind::kArrived, .number = 5, .offset = 6}),
          tcp::seed(tcp::Frame{.kind = tcp::FrameKind::kChunkArrived, .number = 1, .offset = 9, .length = 1}),
          tcp::seed(tcp::Frame{.kind = tcp::FrameKind::kFarewell})};
}
