// SimCompute: one simulated core. It charges virtual time for every byte, one piece of work after another, and does the
// work with the real kernels unless the simulation is byte-free.
//
// It does everything as late as its interface allows: it touches no byte before the time of a piece has passed, and
// returns the memory after a Stop only then.
#pragma once

#include <memory>
#include <vector>

#include "base/sim/deferred_work.h"
#include "base/sim/sim_loop.h"

namespace aiacc::sim {

class SimCompute final : public Compute {
 public:
  // Reads and writes 10 GB/s in total, as one core of a server streams from memory.
  static constexpr std::uint64_t kBytesPerSecond = 10'000'000'000;

  explicit SimCompute(SimLoop& loop, std::uint64_t bytes_per_second = kBytesPerSecond);
  ~SimCompute() override;

  Done copy(Buffer destination, Buffer source, Stop& stop) override;
  Done reduce(std::span<const Buffer> destinations, std::span<const Buffer> operands, std::size_t count,
              const Reduction& reduction, Step step, Stop& stop) override;
  Done encode(Buffer message, Buffer elements, std::size_t count, Codec codec, Stop& stop) override;
  Done decode(Buffer elements, Buffer message, std::size_t count, Codec codec, Decoding how, Stop& stop) override;

  // The piece after `pieces` others fails with `error`, as on a lost device, and does nothing.
  void fail_after(std::uint64_t pieces, std::exception_ptr error) noexcept {
    failing_ = pieces_ + pieces;
    failure_ = std::move(error);
  }
  std::uint64_t pieces() const noexcept { return pieces_; }  // pieces begun so far

 private:
  class Piece;
  Done begin(std::unique_ptr<Piece> piece, std::uint64_t bytes, Stop& stop);
  std::unique_ptr<Piece> acquire_piece();

  SimLoop& loop_;
  std::uint64_t bytes_per_second_;
  Instant free_at_{};
  CpuCompute kernels_;
  std::vector<std::unique_ptr<Piece>> spare_;
  std::uint64_t pieces_ = 0;
  std::uint64_t failing_ = ~std::uint64_t{0};
  std::exception_ptr failure_;
};

}  // namespace aiacc::sim
