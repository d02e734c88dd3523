#include "groupcomm/kv/updater.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <exception>
#include <string>

#include "base/data/cpu_compute.h"
#include "base/error.h"
#include "groupcomm/kv/layout.h"

namespace aiacc::kv {
namespace {

template <class Real>
Real* numbers(std::vector<std::byte>& state, const Run& run) {
  if (state.empty()) state.resize(run.part_elements * sizeof(Real));
  return reinterpret_cast<Real*>(state.data()) + run.at;
}

template <class Real>
struct Step {
  const UpdaterOptions& options;
  const Real rescale = static_cast<Real>(options.rescale), decay = static_cast<Real>(options.decay),
             clip = static_cast<Real>(options.clip > 0 ? options.clip : INFINITY);
  Real gradient(Real given, Real value) const { return std::clamp(given * rescale, -clip, clip) + decay * value; }
};

template <class Real>
void sgd(const UpdaterOptions& options, UpdaterState& state, const Run& run, Real* value, const Real* gradient) {
  const Step<Real> step{options};
  const auto rate = static_cast<Real>(options.rate), momentum = static_cast<Real>(options.momentum);
  if (options.momentum == 0) {
    for (std::size_t i = 0; i < run.count; ++i) value[i] -= rate * step.gradient(gradient[i], value[i]);
    return;
  }
  Real* const moved = numbers<Real>(state.first, run);
  for (std::size_t i = 0; i < run.count; ++i) {
    moved[i] = momentum * moved[i] - rate * step.gradient(gradient[i], value[i]);
    value[i] += moved[i];
  }
}

template <class Real>
void adam(const UpdaterOptions& options, UpdaterState& state, const Run& run, Real* value, const Real* gradient) {
  const Step<Real> step{options};
  const auto steps = static_cast<double>(state.steps);
  const auto rate = static_cast<Real>(options.rate * std::sqrt(1 - std::pow(options.beta2, steps)) /
                                      (1 - std::pow(options.beta1, steps)));
  const auto beta1 = static_cast<Real>(options.beta1), beta2 = static_cast<Real>(options.beta2),
             epsilon = static_cast<Real>(options.epsilon);
  Real* const mean = numbers<Real>(state.first, run);
  Real* const square = numbers<Real>(state.second, run);
  for (std::size_t i = 0; i < run.count; ++i) {
    const Real now = step.gradient(gradient[i], value[i]);
    mean[i] = beta1 * mean[i] + (1 - beta1) * now;
    square[i] = beta2 * square[i] + (1 - beta2) * now * now;
    value[i] -= rate * mean[i] / (std::sqrt(square[i]) + epsilon);
  }
}

template <class Real>
void learn(const UpdaterOptions& options, UpdaterState& state, const Run& run, std::byte* value,
           const std::byte* gradient) {
  auto* const of = reinterpret_cast<Real*>(value);
  const auto* const by = reinterpret_cast<const Real*>(gradient);
  if (options.kind == UpdaterOptions::Kind::kSgd) return sgd(options, state, run, of, by);
  adam(options, state, run, of, by);
}

// A caller in C++ may throw, which nothing above expects.
void call_back(const UpdaterOptions& options, const Run& run, std::byte* value, const std::byte* gradient) {
  const auto failed = [&](const std::string& how) {
    return Error(Code::kAborted, fmt::format("the updater {} for {}", how, describe_key(run.key)));
  };
  int said = 0;
  try {
    said = options.function(options.arg, run.key, run.first, run.count, run.type, gradient, value);
  } catch (const std::exception& thrown) {
    throw failed(fmt::format("threw '{}'", thrown.what()));
  } catch (...) {
    throw failed("threw an exception that is no std::exception");
  }
  if (said != 0) throw failed(fmt::format("returned {}", said));
}

}  // namespace

void check_updater(const UpdaterOptions& options, DType type, std::string_view key) {
  if (!options.learns() || type == DType::kFloat32 || type == DType::kFloat64) return;
  throw Error(Code::kUnsupported,
              fmt::format("{} is {}: the store's optimizer is for fp32 and fp64", describe_key(key), name_of(type)));
}

void add_to(DType type, std::byte* value, const std::byte* gradient, std::size_t count) {
  Reduction sum;
  sum.type = type;
  const std::array<std::byte*, 1> to{value};
  const std::array<const std::byte*, 2> from{value, gradient};
  CpuCompute().reduce_now(to, from, count, sum, 2);
}

void update(const UpdaterOptions& options, UpdaterState& state, const Run& run, std::byte* value,
            const std::byte* gradient) {
  using Rule = UpdaterOptions::Kind;
  if (run.count == 0) return;
  switch (options.kind) {
    case Rule::kAssign: std::memcpy(value, gradient, run.count * size_of(run.type)); return;
    case Rule::kSum: return add_to(run.type, value, gradient, run.count);
    case Rule::kSgd:
    case Rule::kAdam:
      check_updater(options, run.type, run.key);
      return run.type == DType::kFloat64 ? learn<double>(options, state, run, value, gradient)
                                         : learn<float>(options, state, run, value, gradient);
    case Rule::kCallback: break;
  }
  call_back(options, run, value, gradient);
}

}  // namespace aiacc::kv
