#include "base/sim/threaded_compute.h"

#include <algorithm>

#include "base/error.h"

namespace aiacc::sim {
namespace {

// No address of x86-64 or AArch64 processes has this bit.
constexpr std::uintptr_t kDeviceBit = std::uintptr_t{1} << 62;

Buffer reached(Buffer buffer) noexcept {
  if (buffer.on_host()) return buffer;
  buffer.data = ThreadedCompute::behind(buffer.data);
  buffer.kind = MemoryKind::kHost;
  return buffer;
}

}  // namespace

class ThreadedCompute::Piece final : public Compute::Pending, private RemoteJob {
 public:
  explicit Piece(ThreadedCompute& owner) noexcept : owner_(owner) {}
  DeferredWork work;

  void begin(Stop& stop) noexcept {
    start(owner_.loop_, stop);
    failure_ = nullptr;
  }
  // Runs on the thread.
  void do_it(std::exception_ptr failure) noexcept {
    failure_ = std::move(failure);
    try {
      if (!failure_) work.perform(owner_.cpu_);
    } catch (...) {
      failure_ = std::current_exception();
    }
    owner_.loop_.post_from_any_thread(*this);
  }

 private:
  void on_driver() noexcept override { ended(std::move(failure_)); }
  void cancel() noexcept override {
    if (owner_.withdraw(*this)) ended(nullptr);
  }
  void release() noexcept override { owner_.spare_.push_back(this); }

  ThreadedCompute& owner_;
  std::exception_ptr failure_;
};

ThreadedCompute::ThreadedCompute(Loop& loop) : Compute(false), loop_(loop) {
  thread_ = std::make_unique<DriverThread>("test-compute", [this] { serve(); });
}

ThreadedCompute::~ThreadedCompute() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    held_ = false;
  }
  wake_.notify_all();
  thread_.reset();
  for (const Buffer& memory : device_buffers_) device_memory_.free(memory);
}

std::byte* ThreadedCompute::behind(std::byte* device) noexcept {
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(device) & ~kDeviceBit);
}

Buffer ThreadedCompute::DeviceMemory::allocate(std::size_t bytes) {
  auto* const real = static_cast<std::byte*>(::operator new(bytes));
  Buffer memory{reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(real) | kDeviceBit), bytes};
  memory.kind = MemoryKind::kCuda;
  return memory;
}

void ThreadedCompute::DeviceMemory::free(const Buffer& memory) noexcept { ::operator delete(behind(memory.data)); }

Buffer ThreadedCompute::allocate_device(std::size_t bytes) {
  return device_buffers_.emplace_back(device_memory_.allocate(bytes));
}

ScratchPool& ThreadedCompute::scratch(const Buffer& like) {
  return like.on_host() ? Compute::scratch(like) : device_scratch_;
}

ThreadedCompute::Piece& ThreadedCompute::spare() {
  if (spare_.empty()) return *pieces_.emplace_back(std::make_unique<Piece>(*this));
  Piece& piece = *spare_.back();
  spare_.pop_back();
  return piece;
}

Compute::Done ThreadedCompute::copy(Buffer destination, Buffer source, Stop& stop) {
  AIACC_INVARIANT(destination.bytes == source.bytes, "a copy's ends have the same length");
  Piece& piece = spare();
  piece.work.set_copy(reached(destination), reached(source));
  return submit(piece, stop);
}

Compute::Done ThreadedCompute::reduce(std::span<const Buffer> destinations, std::span<const Buffer> operands,
                                      std::size_t count, const Reduction& reduction, Step step, Stop& stop) {
  Piece& piece = spare();
  piece.work.set_reduction(destinations, operands, count, reduction, step);
  for (Buffer& buffer : piece.work.destinations) buffer = reached(buffer);
  for (Buffer& buffer : piece.work.operands) buffer = reached(buffer);
  return submit(piece, stop);
}

Compute::Done ThreadedCompute::encode(Buffer message, Buffer elements, std::size_t count, Codec codec, Stop& stop) {
  Piece& piece = spare();
  piece.work.set_encoding(reached(message), reached(elements), count, codec);
  return submit(piece, stop);
}

Compute::Done ThreadedCompute::decode(Buffer elements, Buffer message, std::size_t count, Codec codec, Decoding how,
                                      Stop& stop) {
  Piece& piece = spare();
  piece.work.set_decoding(reached(elements), reached(message), count, codec, how);
  return submit(piece, stop);
}

Compute::Done ThreadedCompute::submit(Piece& piece, Stop& stop) {
  piece.begin(stop);
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(&piece);
  }
  wake_.notify_all();
  return Done(piece);
}

bool ThreadedCompute::withdraw(Piece& piece) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = std::find(queue_.begin(), queue_.end(), &piece);
  if (found == queue_.end()) return false;
  queue_.erase(found);
  return true;
}

void ThreadedCompute::hold() {
  const std::lock_guard lock(mutex_);
  held_ = true;
}

void ThreadedCompute::proceed() {
  {
    const std::lock_guard lock(mutex_);
    held_ = false;
  }
  wake_.notify_all();
}

void ThreadedCompute::fail_after(std::uint64_t pieces, std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  failing_ = begun_ + pieces;
  failure_ = std::move(error);
}

std::uint64_t ThreadedCompute::begun() const {
  const std::lock_guard lock(mutex_);
  return begun_;
}

void ThreadedCompute::serve() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    Piece& piece = *queue_.front();
    queue_.pop_front();
    const std::exception_ptr failure = begun_++ == failing_ ? failure_ : nullptr;
    wake_.wait(lock, [this] { return !held_; });
    lock.unlock();
    piece.do_it(failure);
    lock.lock();
  }
}

}  // namespace aiacc::sim
