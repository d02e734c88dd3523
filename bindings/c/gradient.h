// What the handle of a gradient engine names.
#pragma once

#include <memory>

#include "bindings/c/state.h"
#include "groupcomm/gradient/engine.h"
#include "include/aiacc/gradient.h"

namespace aiacc::abi {

struct GradientEntry {
  GradientEntry(std::shared_ptr<RealContext> of, Group& its) : context(of), group(std::move(of), its) {}

  std::shared_ptr<RealContext> context;
  GroupEntry group;  // the engine's own; let go with this entry
  std::shared_ptr<gradient::Engine> engine;
};

// Frees the engines of a context that the user has not: their messages need its groups.
void free_engines(RealContext& context) noexcept;

}  // namespace aiacc::abi
