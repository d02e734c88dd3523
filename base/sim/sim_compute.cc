#include "base/sim/sim_compute.h"

#include <algorithm>

namespace aiacc::sim {

// Owned by its awaiter from begin() to release().
class SimCompute::Piece final : public Compute::Pending, private Timer {
 public:
  explicit Piece(SimCompute& owner) noexcept : owner_(owner) {}
  DeferredWork work;

  void begin(Instant when, std::exception_ptr failure, Stop& stop) {
    start(owner_.loop_, stop);
    failure_ = std::move(failure);
    cancelled_ = false;
    owner_.loop_.arm(*this, when);
  }
  void perform() const {
    if (work.has_bytes()) work.perform(owner_.kernels_);
  }

 private:
  void expired() noexcept override {
    if (!cancelled_ && !failure_) perform();
    ended(cancelled_ ? nullptr : std::move(failure_));
  }
  // Work that has begun on a device cannot be cancelled; the caller waits for its end.
  void cancel() noexcept override { cancelled_ = true; }
  void release() noexcept override {
    std::unique_ptr<Piece> self(this);
    owner_.spare_.push_back(std::move(self));
  }

  SimCompute& owner_;
  std::exception_ptr failure_;
  bool cancelled_ = false;
};

SimCompute::SimCompute(SimLoop& loop, std::uint64_t bytes_per_second)
    : Compute(false), loop_(loop), bytes_per_second_(bytes_per_second) {}
SimCompute::~SimCompute() = default;

std::unique_ptr<SimCompute::Piece> SimCompute::acquire_piece() {
  if (spare_.empty()) return std::make_unique<Piece>(*this);
  std::unique_ptr<Piece> piece = std::move(spare_.back());
  spare_.pop_back();
  return piece;
}

Compute::Done SimCompute::begin(std::unique_ptr<Piece> piece, std::uint64_t bytes, Stop& stop) {
  __extension__ using Wide = unsigned __int128;
  const bool fails = pieces_++ == failing_;
  const Duration span(static_cast<std::int64_t>(static_cast<Wide>(bytes) * 1'000'000'000 / bytes_per_second_));
  if (span == Duration{} && !fails) {
    piece->perform();
    spare_.push_back(std::move(piece));
    return Done();
  }
  free_at_ = after(std::max(loop_.now(), free_at_), span);
  Piece* const begun = piece.release();
  begun->begin(free_at_, fails ? failure_ : nullptr, stop);
  return Done(*begun);
}

Compute::Done SimCompute::copy(Buffer destination, Buffer source, Stop& stop) {
  std::unique_ptr<Piece> piece = acquire_piece();
  piece->work.set_copy(destination, source);
  return begin(std::move(piece), 2 * source.bytes, stop);
}

Compute::Done SimCompute::reduce(std::span<const Buffer> destinations, std::span<const Buffer> operands,
                                 std::size_t count, const Reduction& reduction, Step step, Stop& stop) {
  std::unique_ptr<Piece> piece = acquire_piece();
  piece->work.set_reduction(destinations, operands, count, reduction, step);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < destinations.size(); ++i) bytes += count * reduction.result_bytes(i);
  for (std::size_t i = 0; i < operands.size(); ++i) bytes += count * reduction.element_bytes(i);
  return begin(std::move(piece), bytes, stop);
}

Compute::Done SimCompute::encode(Buffer message, Buffer elements, std::size_t count, Codec codec, Stop& stop) {
  std::unique_ptr<Piece> piece = acquire_piece();
  piece->work.set_encoding(message, elements, count, codec);
  return begin(std::move(piece), message.bytes + elements.bytes, stop);
}

Compute::Done SimCompute::decode(Buffer elements, Buffer message, std::size_t count, Codec codec, Decoding how,
                                 Stop& stop) {
  std::unique_ptr<Piece> piece = acquire_piece();
  piece->work.set_decoding(elements, message, count, codec, how);
  return begin(std::move(piece), message.bytes + (how == Decoding::kAdds ? 2 : 1) * elements.bytes, stop);
}

}  // namespace aiacc::sim
