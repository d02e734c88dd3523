// Functions that are common to all Streams.
#include "base/io/net.h"

#include <fmt/format.h>

namespace aiacc::io {

Task<bool> read_exactly(Stream& stream, std::span<std::byte> into, Stop& stop) {
  std::size_t have = 0;
  while (have < into.size()) {
    const std::size_t moved = co_await stream.read_some(into.subspan(have), stop);
    if (moved == 0 && have == 0) co_return false;
    if (moved == 0) {
      throw Error(Code::kProtocol, fmt::format("{} closed in the middle of a message: {} of {} bytes arrived",
                                               stream.describe(), have, into.size()));
    }
    have += moved;
  }
  co_return true;
}

Task<void> write_all(Stream& stream, std::span<const std::byte> from, Stop& stop) {
  while (!from.empty()) {
    const std::size_t moved = co_await stream.write_some(from, stop);
    from = from.subspan(moved);
  }
}

}  // namespace aiacc::io
