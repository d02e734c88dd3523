// The requests of workers and the answers of servers, as payloads of service messages. Both ends are of one build and byte order
// (the handshake of ranks sees to that), so structs travel as they are; lengths are checked all the same.
//
//   request   RequestHead, the key padded to 8 bytes, rows of the gradient and rows to read (64-bit numbers within the part), elements
//   answer    AnswerHead, then the sentence of an error, or elements
// The word of a service message is the request's number, which its answer repeats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "groupcomm/kv/part.h"
#include "transports/service/service.h"

namespace aiacc::kv {

enum class Kind : std::uint8_t {
  kDeclare = 1,  // to the key's home: the shape is this; answered when the first worker has defined the key
  kCreate,       // of the first worker: a part, with its first value
  kDefine,       // of the first worker, to the key's home: all parts are there
  kPush,         // may read too
  kPull,
  // To the server that chooses who sums rounds (round_choice.h), before a push.
  kReady,  // answered when the round is decided
  kSends,
  kWithdraw,
  kSupply,  // to the server of a part: the sum of a round that the workers have summed
};

// Requests for a part that wait for their turn in its queue.
constexpr bool in_queue_of_part(Kind kind) noexcept {
  return kind == Kind::kCreate || kind == Kind::kPush || kind == Kind::kPull;
}

enum class Encoding : std::uint8_t { kPlain, kFloat16, kBFloat16, kTwoBit };

struct RequestHead {
  Kind kind{};
  Encoding encoding = Encoding::kPlain;
  Reading::What reads = Reading::What::kNothing;
  bool some_rows = false;  // the gradient has rows
  std::int32_t type = 0;   // DType
  std::uint32_t key_bytes = 0;
  std::uint32_t part = 0;
  std::uint64_t rows = 0, row_elements = 0;           // of the whole value
  std::uint64_t part_first_row = 0, part_rows = 0;    // kCreate
  std::uint64_t gradient_rows = 0, reading_rows = 0;  // how many row numbers follow
  std::uint64_t after = 0;                            // Reading::after
  std::uint64_t number = 0;                           // kPush: Gradient::number
  float threshold = 0;                                // kTwoBit
  std::int32_t server = 0;                            // whose request it is, by index: its replica gets it after a loss

  Shape shape() const noexcept { return {static_cast<DType>(type), rows, row_elements}; }
};
static_assert(sizeof(RequestHead) == 88);

constexpr std::size_t padded(std::size_t bytes) noexcept { return (bytes + 7) / 8 * 8; }

// A request being written. The elements go to `elements()`.
class RequestWriter {
 public:
  RequestWriter(ServiceMemory& memory, RequestHead head, std::string_view key,
                std::span<const std::uint64_t> gradient_rows, std::span<const std::uint64_t> reading_rows,
                std::size_t element_bytes);
  std::byte* elements() noexcept { return bytes_.data() + offset_; }
  ServiceBytes take() noexcept { return std::move(bytes_); }

 private:
  ServiceBytes bytes_;
  std::size_t offset_;
};

// Refers to the payload. Throws kProtocol if it is no request.
struct RequestView {
  explicit RequestView(std::span<const std::byte> payload);
  RequestHead head;
  std::string_view key;
  std::vector<std::uint64_t> gradient_rows, reading_rows;
  std::size_t offset;  // of the elements
  std::span<const std::byte> elements;
};

ServiceBytes answer_bytes(const Answer& answer, ServiceMemory& memory);

struct AnswerView {
  explicit AnswerView(std::span<const std::byte> payload);
  std::optional<Error> error;
  std::span<const std::byte> elements;
  bool together;
};

}  // namespace aiacc::kv
