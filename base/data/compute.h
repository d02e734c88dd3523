// Compute: copies and reduces elements. Its calls return awaitables: a CPU runs the work inline, a GPU completes it by
// an event of its stream, and the simulator charges virtual time for it and may leave out the bytes.
//
// Every implementation gives the same bits: n operands are combined in the order they are given, in the accumulate type,
// and rounded once.
//
// No other code accesses the bytes of a payload: device memory has no address in this process, and only its Compute can
// reach it. Transports document separately what ports and shared memory do with payloads.
#pragma once

#include <coroutine>
#include <exception>
#include <span>
#include <utility>

#include "base/data/buffer.h"
#include "base/data/reduction.h"
#include "base/data/scratch_pool.h"
#include "base/task/loop.h"

namespace aiacc {

class Compute {
 public:
  virtual ~Compute() = default;
  Compute(const Compute&) = delete;
  Compute& operator=(const Compute&) = delete;

  // Work that goes on after the call that began it: an event on a stream, a timer of the simulator, another thread. Its
  // Compute owns it and gets it back by release(). The loop resumes the awaiting coroutine only when the work no longer
  // accesses the memory, even if a Stop is requested meanwhile; the await then throws the Stop's reason.
  class Pending : private Job, private Stop::Waiter {
   public:
    Pending(const Pending&) = delete;
    Pending& operator=(const Pending&) = delete;

   protected:
    Pending() = default;
    ~Pending() = default;
    // Call before the work begins, with the loop that drives it and the Stop that may end it early. A Pending may be
    // reused after release().
    void start(Loop& loop, Stop& stop) noexcept {
      loop_ = &loop;
      stop_ = &stop;
      self_ = nullptr;
      error_ = nullptr;
      ended_ = abandoned_ = false;
    }
    // The implementation calls this once, on the loop's thread, when the work no longer accesses the memory. `error`
    // says why the work failed, or is null.
    void ended(std::exception_ptr error) noexcept {
      Stop::Waiter::unlink();
      ended_ = true;
      if (error) error_ = std::move(error);
      if (self_) return loop_->post(*this);
      if (abandoned_) release();
    }

   private:
    friend class Compute;
    // Cancels the work: ended() follows as soon as possible, perhaps from inside. Work that has begun may have to run
    // to its end.
    virtual void cancel() noexcept = 0;
    // Called after ended(), when nobody refers to this object any more.
    virtual void release() noexcept = 0;

    void await(std::coroutine_handle<> self) noexcept {
      self_ = self;
      if (!stop_->requested()) return stop_->add(*this);
      on_stop(stop_->reason());
    }
    void on_stop(const std::exception_ptr& reason) noexcept final {
      error_ = reason;
      cancel();
    }
    void run() noexcept final { resume(std::exchange(self_, nullptr)); }
    void give_back() noexcept {
      if (ended_) return release();
      abandoned_ = true;
      cancel();
    }

    Loop* loop_ = nullptr;
    Stop* stop_ = nullptr;
    std::coroutine_handle<> self_;
    std::exception_ptr error_;
    bool ended_ = false;
    bool abandoned_ = false;
  };

  // The awaitable that a call returns; await it at once. If the work ran inline it is ready: one word, without a
  // coroutine frame or a Pending.
  class [[nodiscard]] Done {
   public:
    Done() = default;  // finished inline
    explicit Done(Pending& pending) noexcept : pending_(&pending) {}
    Done(Done&& other) noexcept : pending_(std::exchange(other.pending_, nullptr)) {}
    Done& operator=(Done&&) = delete;
    ~Done() {
      if (pending_ != nullptr) pending_->give_back();
    }
    bool await_ready() const noexcept { return pending_ == nullptr || pending_->ended_; }
    void await_suspend(std::coroutine_handle<> self) noexcept { pending_->await(self); }
    // Throws the work's error, or the reason of a Stop that was requested before its end.
    void await_resume() const {
      if (pending_ != nullptr && pending_->error_) std::rethrow_exception(pending_->error_);
    }

   private:
    Pending* pending_ = nullptr;
  };

  // Whether work on host memory completes inside its call. The paths of a collective that have no coroutine require it.
  bool works_inline() const noexcept { return works_inline_; }

  // Lists, the reduction and the step are read before a call returns. The caller must not touch the memory before the
  // Done has ended. A call throws for invalid arguments; only work that does not finish inline checks `stop`.

  // destination[i] = source[i]. The buffers have equal lengths and do not overlap.
  virtual Done copy(Buffer destination, Buffer source, Stop& stop) = 0;

  // Each destination[i] = finish(op over operands in order of prescale * operand[i]), for `count` elements, in one
  // pass: n loads and one store for each destination. A destination must be equal to an operand or not overlap any.
  // `finish` applies AVG's division by `ranks` and the postscale if `last` is set; the prescale is applied if `first`
  // is set. Rings call this once per step, direct algorithms once in total. If operands and results have different
  // element types (Reduction::operands, results), destinations must not overlap operands.
  struct Step {
    bool first = true;
    bool last = true;
    int ranks = 1;
  };
  virtual Done reduce(std::span<const Buffer> destinations, std::span<const Buffer> operands, std::size_t count,
                      const Reduction& reduction, Step step, Stop& stop) = 0;

  // Between `count` elements of fp32 and a message of encoded_bytes(codec, count) bytes (codec.h). decode() writes the elements,
  // or adds them to what is there. The buffers do not overlap.
  virtual Done encode(Buffer message, Buffer elements, std::size_t count, Codec codec, Stop& stop) = 0;
  enum class Decoding : bool { kWrites, kAdds };
  virtual Done decode(Buffer elements, Buffer message, std::size_t count, Codec codec, Decoding how, Stop& stop) = 0;

  // The pool of scratch memory of the same kind and device as `like`. Throws kUnsupported for memory that this Compute
  // cannot reach. This class implements host memory.
  virtual ScratchPool& scratch(const Buffer& like);

 protected:
  explicit Compute(bool works_inline) noexcept : works_inline_(works_inline) {}

 private:
  const bool works_inline_;
  HostMemory host_memory_;
  ScratchPool host_scratch_{host_memory_};
};

}  // namespace aiacc
