// What a server does with a gradient: the updater of its values. The formulas are those of MXNet 1.9's optimizers, so that a
// training that moves its optimizer to the servers goes on with the same numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/data/dtype.h"

namespace aiacc::kv {

struct UpdaterOptions {
  enum class Kind : std::uint8_t {
    kAssign,  // value = gradient
    kSum,     // value += gradient
    kSgd,  // value -= rate (gradient + decay value); with momentum: state = momentum state - rate (...), value += state
    kAdam,  // Kingma & Ba, ICLR 2015, with the bias correction in the rate
    kCallback,
  };
  // Changes `value` by `gradient`: `count` elements from `first` on. Not 0: it has failed, and the pushes with it.
  using Function = int (*)(void* arg, std::string_view key, std::uint64_t first, std::size_t count, DType type,
                           const void* gradient, void* value);

  Kind kind = Kind::kAssign;
  double rate = 0.01;
  double momentum = 0;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double decay = 0;    // of weights, added to the gradient
  double rescale = 1;  // of the gradient, before all else
  double clip = 0;     // of the rescaled gradient's elements to [-clip, clip]; 0: none
  Function function = nullptr;
  void* arg = nullptr;

  bool learns() const noexcept { return kind == Kind::kSgd || kind == Kind::kAdam; }
};

// What an updater remembers of a part of a value: momentum, or Adam's moments; empty before they are needed.
struct UpdaterState {
  std::vector<std::byte> first, second;
  std::uint64_t steps = 0;
};

// A run of elements of a part.
struct Run {
  std::string_view key;
  DType type;
  std::uint64_t first;        // of the whole value
  std::size_t at;             // of the part
  std::size_t part_elements;  // for the state
  std::size_t count;
};

// Throws unless values of that type can have such an updater.
void check_updater(const UpdaterOptions& options, DType type, std::string_view key);
// `value` and `gradient` point to the run's first element. state.steps counts this step already. Throws kAborted if the callback
// fails.
void update(const UpdaterOptions& options, UpdaterState& state, const Run& run, std::byte* value,
            const std::byte* gradient);
// value[i] += gradient[i], in any type.
void add_to(DType type, std::byte* value, const std::byte* gradient, std::size_t count);

}  // namespace aiacc::kv
