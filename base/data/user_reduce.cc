#include "base/data/user_reduce.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace aiacc {
namespace {

// Records are combined in pieces of this size, which stay in the L1 cache for all operands.
constexpr std::size_t kPieceBytes = 8 << 10;

}  // namespace

void reduce_by_user(std::span<std::byte* const> destinations, std::span<const std::byte* const> operands,
                    std::size_t count, const UserOp& op) {
  if (op.of_all != nullptr) {
    op.of_all(destinations[0], operands.data(), operands.size(), count, op.arg);
    for (std::byte* destination : destinations.subspan(1))
      std::memcpy(destination, destinations[0], count * op.record_bytes);
    return;
  }
  alignas(64) std::byte near[kPieceBytes];
  std::unique_ptr<std::byte[]> far;
  if (op.record_bytes > kPieceBytes) far = std::make_unique_for_overwrite<std::byte[]>(op.record_bytes);
  std::byte* const sum = far ? far.get() : near;
  const std::size_t piece = std::max<std::size_t>(1, kPieceBytes / op.record_bytes);
  for (std::size_t done = 0; done < count; done += piece) {
    const std::size_t now = std::min(piece, count - done);
    const std::size_t at = done * op.record_bytes;
    const std::size_t bytes = now * op.record_bytes;
    std::memcpy(sum, operands[0] + at, bytes);
    for (const std::byte* operand : operands.subspan(1)) op.function(sum, operand + at, now, op.arg);
    for (std::byte* destination : destinations) std::memcpy(destination + at, sum, bytes);
  }
}

}  // namespace aiacc
