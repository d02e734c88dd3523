#include "transports/abort_notice.h"

#include <algorithm>

namespace aiacc {
namespace {

template <class Word>
void put(std::vector<std::byte>& bytes, Word word) {
  for (std::size_t i = 0; i < sizeof word; ++i) {
    bytes.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(word) >> (8 * i)));
  }
}

template <class Word>
Word get(std::span<const std::byte>& bytes) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < sizeof(Word); ++i) word |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  bytes = bytes.subspan(sizeof(Word));
  return static_cast<Word>(word);
}

bool known(std::uint16_t code) noexcept {
  return code > static_cast<std::uint16_t>(Code::kOk) && code <= static_cast<std::uint16_t>(Code::kInternal);
}

}  // namespace

std::vector<std::byte> AbortNotice::encode() const {
  std::vector<std::byte> bytes;
  const std::size_t length = std::min(text.size(), kMaxSentence);
  const std::size_t ranks = std::min(about.size(), kMostAbout);
  bytes.reserve(kFixedBytes + 4 * ranks + length);
  put(bytes, static_cast<std::uint16_t>(stage));
  put(bytes, static_cast<std::uint16_t>(code));
  put(bytes, static_cast<std::uint32_t>(rank));
  put(bytes, static_cast<std::uint32_t>(other));
  put(bytes, fingerprint);
  put(bytes, static_cast<std::uint32_t>(ranks));
  for (std::size_t i = 0; i < ranks; ++i) put(bytes, static_cast<std::uint32_t>(about[i]));
  for (char letter : std::string_view(text).substr(0, length)) bytes.push_back(static_cast<std::byte>(letter));
  return bytes;
}

std::optional<AbortNotice> AbortNotice::decode(std::span<const std::byte> bytes) {
  if (bytes.size() < kFixedBytes || bytes.size() > kMaxBytes) return std::nullopt;
  AbortNotice notice;
  const auto stage = get<std::uint16_t>(bytes);
  const auto code = get<std::uint16_t>(bytes);
  if (stage < 1 || stage > 8 || !known(code)) return std::nullopt;
  notice.stage = static_cast<Stage>(stage);
  notice.code = static_cast<Code>(code);
  notice.rank = static_cast<std::int32_t>(get<std::uint32_t>(bytes));
  notice.other = static_cast<std::int32_t>(get<std::uint32_t>(bytes));
  notice.fingerprint = get<std::uint64_t>(bytes);
  const auto ranks = get<std::uint32_t>(bytes);
  if (ranks > kMostAbout || bytes.size() < 4 * ranks) return std::nullopt;
  for (std::uint32_t i = 0; i < ranks; ++i) {
    notice.about.push_back(static_cast<std::int32_t>(get<std::uint32_t>(bytes)));
  }
  for (std::byte letter : bytes) notice.text.push_back(static_cast<char>(letter));
  return notice;
}

}  // namespace aiacc
