#include "groupcomm/kv/messages.h"

#include <fmt/format.h>

#include <cstring>

namespace aiacc::kv {
namespace {

[[noreturn]] void malformed_message(std::size_t bytes) {
  throw Error(Code::kProtocol, fmt::format("{} bytes are no message of a key-value store", bytes));
}

// `bytes` more of the payload, from `at` on.
std::span<const std::byte> next(std::span<const std::byte> payload, std::size_t& at, std::uint64_t bytes) {
  if (bytes > payload.size() - at) malformed_message(payload.size());
  const auto part = payload.subspan(at, static_cast<std::size_t>(bytes));
  at += part.size();
  return part;
}

std::vector<std::uint64_t> next_rows(std::span<const std::byte> payload, std::size_t& at, std::uint64_t rows) {
  if (rows > payload.size()) malformed_message(payload.size());
  const auto bytes = next(payload, at, rows * sizeof(std::uint64_t));
  std::vector<std::uint64_t> numbers(static_cast<std::size_t>(rows));
  if (!bytes.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

}  // namespace

RequestWriter::RequestWriter(ServiceMemory& memory, RequestHead head, std::string_view key,
                             std::span<const std::uint64_t> gradient_rows, std::span<const std::uint64_t> reading_rows,
                             std::size_t element_bytes) {
  head.key_bytes = static_cast<std::uint32_t>(key.size());
  head.gradient_rows = gradient_rows.size();
  head.reading_rows = reading_rows.size();
  offset_ = sizeof head + padded(key.size()) + gradient_rows.size_bytes() + reading_rows.size_bytes();
  bytes_ = ServiceBytes(offset_ + element_bytes, memory);
  std::byte* to = bytes_.data();
  const auto write = [&to](const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    to += bytes;
  };
  write(&head, sizeof head);
  write(key.data(), key.size());
  std::memset(to, 0, padded(key.size()) - key.size());
  to += padded(key.size()) - key.size();
  write(gradient_rows.data(), gradient_rows.size_bytes());
  write(reading_rows.data(), reading_rows.size_bytes());
}

RequestView::RequestView(std::span<const std::byte> payload) {
  std::size_t at = 0;
  std::memcpy(&head, next(payload, at, sizeof head).data(), sizeof head);
  const auto text = next(payload, at, head.key_bytes);
  key = {reinterpret_cast<const char*>(text.data()), text.size()};
  static_cast<void>(next(payload, at, padded(text.size()) - text.size()));
  if (head.type < 0 || head.type >= kDTypes || key.empty()) malformed_message(payload.size());
  gradient_rows = next_rows(payload, at, head.gradient_rows);
  reading_rows = next_rows(payload, at, head.reading_rows);
  offset = at;
  elements = payload.subspan(at);
}

ServiceBytes answer_bytes(const Answer& answer, ServiceMemory& memory) {
  AnswerHead head;
  head.together = answer.together ? 1 : 0;
  if (answer.error) {
    const std::string& text = answer.error->message();
    head.code = static_cast<std::int32_t>(answer.error->code());
    head.peer = answer.error->peer();
    head.text_bytes = static_cast<std::uint32_t>(text.size());
    ServiceBytes bytes(sizeof head + text.size());
    std::memcpy(bytes.data(), &head, sizeof head);
    std::memcpy(bytes.data() + sizeof head, text.data(), text.size());
    return bytes;
  }
  const bool some = answer.reading.what == Reading::What::kRows;
  if (answer.value != nullptr && !some && !answer.together)
    return ServiceBytes::shared(answer.value->answer(), answer.value);
  const std::size_t elements = answer.value == nullptr ? 0 : answer.reading.rows.size() * answer.row_bytes;
  ServiceBytes bytes(sizeof head + elements, memory);
  std::memcpy(bytes.data(), &head, sizeof head);
  std::byte* to = bytes.data() + sizeof head;
  if (elements == 0) return bytes;
  for (const std::uint64_t row : answer.reading.rows) {
    std::memcpy(to, answer.value->data() + static_cast<std::size_t>(row) * answer.row_bytes, answer.row_bytes);
    to += answer.row_bytes;
  }
  return bytes;
}

AnswerView::AnswerView(std::span<const std::byte> payload) {
  AnswerHead head;
  std::size_t at = 0;
  std::memcpy(&head, next(payload, at, sizeof head).data(), sizeof head);
  if (head.code != 0) {
    const auto text = next(payload, at, head.text_bytes);
    error.emplace(static_cast<Code>(head.code), std::string(reinterpret_cast<const char*>(text.data()), text.size()),
                  head.peer);
  }
  elements = payload.subspan(at);
  together = head.together != 0;
}

}  // namespace aiacc::kv
