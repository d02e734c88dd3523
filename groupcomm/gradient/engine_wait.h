// Callers that wait for an engine: for all that this rank has submitted, or until all ranks have joined; or for one tensor.
#pragma once

#include <exception>
#include <utility>

#include "groupcomm/gradient/engine.h"

namespace aiacc::gradient {

class Engine::Wait final : public Work {
 public:
  Wait(Engine& engine, bool until_all_join) noexcept : joins(until_all_join), engine_(engine) {}
  void end(std::exception_ptr error) noexcept {
    why = std::move(error);
    finish();
  }

  const bool joins;
  Instant began{};  // of a wait that is not refused
  std::exception_ptr why;
  int last_rank = -1;  // to join

 private:
  void begin() noexcept override { engine_.begin_wait(*this); }
  Engine& engine_;
};

// Ends when the tensor is not outstanding any more, or at its time.
class Engine::TensorWait final : public Work {
 public:
  TensorWait(Engine& engine, std::uint32_t number, Duration most) noexcept
      : tensor(number), limit(most), engine_(engine) {}
  void end(std::exception_ptr error) noexcept {
    time_.disarm();
    why = std::move(error);
    finish();
  }
  void arm(Instant when) { engine_.loop_.arm(time_, when); }

  const std::uint32_t tensor;
  const Duration limit;
  std::exception_ptr why;
  bool in_time = true;

 private:
  struct Time final : Timer {
    explicit Time(TensorWait& of) : wait(of) {}
    void expired() noexcept override {
      wait.in_time = false;
      wait.engine_.drop(wait);
      wait.end(nullptr);
    }
    TensorWait& wait;
  };
  void begin() noexcept override { engine_.begin_wait(*this); }
  Engine& engine_;
  Time time_{*this};
};

}  // namespace aiacc::gradient
