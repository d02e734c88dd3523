// AlgorithmRules: which algorithms between hosts the user permits (AIACC_ALGORITHM).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/operation.h"

namespace aiacc::inter {

struct AlgorithmInfo;

class AlgorithmRules {
 public:
  AlgorithmRules() noexcept { permitted_.fill(~std::uint32_t{0}); }
  // "allreduce=ring,broadcast=^chain": for each collective the algorithms to use, with | between several, or with ^ those
  // not to use. Throws kInvalidArgument with a sentence that begins with `name`.
  static AlgorithmRules parse(std::string_view name, std::string_view text);

  // Whether the user names algorithms of this collective.
  bool restricts(Collective kind) const noexcept { return ~permitted(kind) != 0; }
  bool permits(const AlgorithmInfo& algorithm) const noexcept;
  // For every collective that is restricted, its permitted algorithms: equal texts mean equal choices. "" if none is.
  std::string text() const;

  // Bit i stands for algorithms_of()[i].
  std::uint32_t permitted(Collective kind) const noexcept { return permitted_[static_cast<std::size_t>(kind)]; }

 private:
  std::array<std::uint32_t, 16> permitted_;  // by collective
};

}  // namespace aiacc::inter
