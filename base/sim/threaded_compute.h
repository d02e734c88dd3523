// ThreadedCompute: a Compute whose work a thread of its own does in order, as a device's stream does. For tests on real
// loops: it behaves towards its callers as a GPU will. Completions reach the lane as remote jobs of its loop.
//
// It also simulates device memory: its addresses fault on direct access, so code that touches the bytes without the
// Compute crashes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "base/sim/deferred_work.h"
#include "base/task/driver_thread.h"

namespace aiacc::sim {

class ThreadedCompute final : public Compute {
 public:
  explicit ThreadedCompute(Loop& loop);
  ~ThreadedCompute() override;  // requires that no work is pending

  Done copy(Buffer destination, Buffer source, Stop& stop) override;
  Done reduce(std::span<const Buffer> destinations, std::span<const Buffer> operands, std::size_t count,
              const Reduction& reduction, Step step, Stop& stop) override;
  Done encode(Buffer message, Buffer elements, std::size_t count, Codec codec, Stop& stop) override;
  Done decode(Buffer elements, Buffer message, std::size_t count, Codec codec, Decoding how, Stop& stop) override;
  ScratchPool& scratch(const Buffer& like) override;

  // Device memory; freed with its Compute.
  Buffer allocate_device(std::size_t bytes);
  // The host address of device memory.
  static std::byte* behind(std::byte* device) noexcept;

  // --- any thread ------------------------------------------------------------------------------------------------------
  // No piece begins until proceed(); one that has begun is held in its middle.
  void hold();
  void proceed();
  // The piece after `pieces` others fails with `error` and does nothing.
  void fail_after(std::uint64_t pieces, std::exception_ptr error);
  std::uint64_t begun() const;  // pieces begun so far

 private:
  class Piece;
  struct DeviceMemory final : MemoryAllocator {
    Buffer allocate(std::size_t bytes) override;
    void free(const Buffer& memory) noexcept override;
  };

  Piece& spare();
  Done submit(Piece& piece, Stop& stop);
  bool withdraw(Piece& piece) noexcept;  // false: it has begun
  void serve() noexcept;

  Loop& loop_;
  CpuCompute cpu_;
  DeviceMemory device_memory_;
  ScratchPool device_scratch_{device_memory_};
  std::vector<Buffer> device_buffers_;
  std::vector<std::unique_ptr<Piece>> pieces_;  // all pieces
  std::vector<Piece*> spare_;

  mutable std::mutex mutex_;  // guards all members below
  std::condition_variable wake_;
  std::deque<Piece*> queue_;
  bool held_ = false;
  bool stopping_ = false;
  std::uint64_t begun_ = 0;
  std::uint64_t failing_ = ~std::uint64_t{0};
  std::exception_ptr failure_;
  std::unique_ptr<DriverThread> thread_;
};

}  // namespace aiacc::sim
