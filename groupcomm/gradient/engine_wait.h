// A caller that waits for an engine: for all that this rank has submitted, or until all ranks have joined.
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
  std::exception_ptr why;
  int last_rank = -1;  // to join

 private:
  void begin() noexcept override { engine_.begin_wait(*this); }
  Engine& engine_;
};

}  // namespace aiacc::gradient
