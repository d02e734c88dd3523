#include "groupcomm/gradient/word.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace aiacc::gradient {
namespace {

constexpr std::size_t kMostOfNumber = 10;  // bytes of a LEB128 number of 64 bits

// Unused high bits of the AND flags are 0 in every word but the neutral one, whose flags are all set.
constexpr std::uint32_t kAllFlags = Word::kAllFlushed | Word::kAllJoined | Word::kAllAtEnd;

constexpr std::size_t words_for(std::size_t tensors) { return (tensors + 63) / 64; }
constexpr std::size_t bytes_for(std::size_t tensors) { return (tensors + 7) / 8; }

constexpr std::uint64_t used_bits(std::size_t tensors) {
  return tensors % 64 == 0 ? ~std::uint64_t{0} : (std::uint64_t{1} << (tensors % 64)) - 1;
}

class Out {
 public:
  explicit Out(std::span<std::byte> out) : out_(out) {}
  void byte(std::uint64_t value) { out_[written_++] = static_cast<std::byte>(value); }
  void number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) byte((value & 0x7f) | 0x80);
    byte(value);
  }
  std::size_t written() const { return written_; }

 private:
  std::span<std::byte> out_;
  std::size_t written_ = 0;
};

[[noreturn]] void refuse(std::string_view why) {
  throw Error(Code::kProtocol, fmt::format("a word of the gradient negotiation is not valid: {}", why));
}

class In {
 public:
  explicit In(std::span<const std::byte> bytes) : left_(bytes) {}
  std::uint64_t byte() {
    if (left_.empty()) refuse("it ends too early");
    const auto value = std::to_integer<std::uint64_t>(left_.front());
    left_ = left_.subspan(1);
    return value;
  }
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const std::uint64_t next = byte();
      if (shift == 63 && next > 1) refuse("a number has more than 64 bits");
      value |= (next & 0x7f) << shift;
      if (next < 0x80) {
        if (next == 0 && shift != 0) refuse("a number has more bytes than it needs");
        return value;
      }
    }
  }
  std::size_t left() const { return left_.size(); }

 private:
  std::span<const std::byte> left_;
};

}  // namespace

void Word::resize(std::size_t tensors, std::uint64_t fill) {
  tensors_ = tensors;
  bits_.assign(words_for(tensors), fill);
  if (!bits_.empty()) bits_.back() &= used_bits(tensors);
}

void Word::reset_to_neutral(std::size_t tensors) {
  resize(tensors, ~std::uint64_t{0});
  all_ = kAllFlags;
  any_ = 0;
  numbers_.fill(0);
}

void Word::reset_to_empty(std::size_t tensors) {
  resize(tensors, 0);
  all_ = 0;
  any_ = 0;
  numbers_.fill(0);
}

void Word::set_all_ready() noexcept {
  std::fill(bits_.begin(), bits_.end(), ~std::uint64_t{0});
  if (!bits_.empty()) bits_.back() &= used_bits(tensors_);
}

void Word::merge(const Word& other) {
  if (other.tensors_ != tensors_)
    throw Error(Code::kProtocol,
                fmt::format("words of one negotiation round are of {} and of {} tensors", tensors_, other.tensors_));
  all_ &= other.all_;
  any_ |= other.any_;
  for (std::size_t field = 0; field < kFields; ++field)
    numbers_[field] = std::max(numbers_[field], other.numbers_[field]);
  for (std::size_t word = 0; word < bits_.size(); ++word) bits_[word] &= other.bits_[word];
}

std::size_t Word::most_encoded() const noexcept { return (4 + kFields) * kMostOfNumber + bytes_for(tensors_); }

std::size_t Word::encode(std::span<std::byte> out) const {
  AIACC_INVARIANT(out.size() >= most_encoded(), "a word is encoded into most_encoded() bytes");
  Out to(out);
  to.number(all_);
  to.number(any_);
  std::uint64_t present = 0;
  for (std::size_t field = 0; field < kFields; ++field) present |= std::uint64_t{numbers_[field] != 0} << field;
  to.number(present);
  for (std::uint64_t number : numbers_)
    if (number != 0) to.number(number);
  to.number(tensors_);
  for (std::size_t byte = 0; byte < bytes_for(tensors_); ++byte) to.byte(bits_[byte / 8] >> (byte % 8 * 8) & 0xff);
  return to.written();
}

void Word::decode(std::span<const std::byte> bytes) {
  In from(bytes);
  const std::uint64_t all = from.number();
  const std::uint64_t any = from.number();
  if ((all & ~std::uint64_t{kAllFlags}) != 0 || any > UINT32_MAX) refuse("it has unknown flags");
  const std::uint64_t present = from.number();
  if (present >> kFields != 0) refuse("it has unknown numbers");
  std::array<std::uint64_t, kFields> numbers{};
  for (std::size_t field = 0; field < kFields; ++field) {
    if ((present >> field & 1) == 0) continue;
    numbers[field] = from.number();
    if (numbers[field] == 0) refuse("it gives a number that is 0");
  }
  const std::uint64_t tensors = from.number();
  // Before anything is allocated; the first comparison keeps the second from overflowing.
  if (tensors / 8 > from.left() || bytes_for(tensors) != from.left())
    refuse(fmt::format("{} tensors do not take {} bytes", tensors, from.left()));
  resize(tensors, 0);
  for (std::size_t byte = 0; byte < bytes_for(tensors); ++byte) bits_[byte / 8] |= from.byte() << (byte % 8 * 8);
  if (!bits_.empty() && (bits_.back() & ~used_bits(tensors)) != 0) refuse("it has bits past its last tensor");
  all_ = static_cast<std::uint32_t>(all);
  any_ = static_cast<std::uint32_t>(any);
  numbers_ = numbers;
}

}  // namespace aiacc::gradient
