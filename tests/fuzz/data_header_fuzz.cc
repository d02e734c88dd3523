// Fuzzes the decoder of data headers. Any input throws kProtocol or decodes to a header that encodes to the same bytes.
//
// Built on request: `make data_header_fuzz`; see agent_messages_fuzz.cc.
#include <algorithm>
#include <cstdlib>

#include "tests/fuzz/driver.h"
#include "transports/tcp/data_header.h"

namespace aiacc::tcp {
namespace {

void feed(std::span<const std::byte> bytes) {
  for (; bytes.size() >= kHeaderBytes; bytes = bytes.subspan(kHeaderBytes)) {
    const MessageHeader header = decode_header(bytes.first<kHeaderBytes>());
    std::array<std::byte, kHeaderBytes> again;
    encode_header(header, again);
    if (!std::equal(again.begin(), again.end(), bytes.begin())) std::abort();
  }
}

wire::Bytes seed(const MessageHeader& header) {
  wire::Bytes bytes(kHeaderBytes);
  encode_header(header, std::span<std::byte, kHeaderBytes>(bytes));
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
  return {tcp::seed(eager), tcp::seed(data), tcp::seed(tcp::ack_header(5, 0)),
          tcp::seed(tcp::ack_header(1000, tcp::kAckAsks | tcp::kAckLeaves))};
}
