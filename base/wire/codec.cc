#include "base/wire/codec.h"

#include <fmt/format.h>

#include <limits>

namespace aiacc::wire {

void Writer::append(std::span<const std::byte> bytes) { out_.insert(out_.end(), bytes.begin(), bytes.end()); }

void Writer::put_count(std::size_t count) {
  AIACC_INVARIANT(count <= std::numeric_limits<std::uint32_t>::max(),
                  "a message field is longer than a message may be");
  put(static_cast<std::uint32_t>(count));
}

std::span<const std::byte> Reader::take(std::size_t bytes) {
  if (bytes > left_.size()) {
    throw Error(Code::kProtocol,
                fmt::format("{} is cut short: {} bytes are left where {} are needed", what_, left_.size(), bytes));
  }
  const std::span<const std::byte> taken = left_.first(bytes);
  left_ = left_.subspan(bytes);
  return taken;
}

std::size_t Reader::get_count(std::size_t element_bytes) {
  std::uint32_t count = 0;
  get(count);
  if (count > left_.size() / element_bytes) {
    throw Error(Code::kProtocol, fmt::format("{} announces {} elements of at least {} bytes with {} bytes left", what_,
                                             count, element_bytes, left_.size()));
  }
  return count;
}

void Reader::expect_end() const {
  if (left_.empty()) return;
  throw Error(Code::kProtocol, fmt::format("{} has {} bytes too many", what_, left_.size()));
}

void Reader::refuse_bool(std::byte value) const {
  throw Error(Code::kProtocol, fmt::format("{} has a truth value of {} where only 0 and 1 mean something", what_,
                                           static_cast<int>(value)));
}

}  // namespace aiacc::wire
