// aiacc-info --algorithms: which algorithm between hosts is chosen for which length, and why.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "collectives/inter/algorithm_info.h"
#include "collectives/inter/algorithm_rules.h"
#include "collectives/inter/algorithm_table.h"
#include "tools/info/options.h"

namespace aiacc::tools {

class AlgorithmsReport {
 public:
  // Reads AIACC_ALGORITHM and AIACC_ALGORITHM_TABLE. Throws kInvalidArgument for a bad setting; a bad table is a sentence of
  // the report, as it is in a job.
  explicit AlgorithmsReport(const InfoOptions& options);

  std::string text() const;
  // An object for each collective and length.
  aiacc::Json json() const;

 private:
  const inter::AlgorithmTable* table() const noexcept { return table_ ? &*table_ : nullptr; }
  inter::Shape shape_of(aiacc::Collective kind, std::uint64_t bytes) const;
  const inter::AlgorithmInfo& chosen(const inter::Shape& shape) const;
  std::string text_for_any_length(aiacc::Collective kind) const;
  std::string text_for(aiacc::Collective kind, std::uint64_t bytes) const;
  aiacc::Json json_for(aiacc::Collective kind, std::uint64_t bytes) const;

  InfoOptions options_;
  inter::AlgorithmRules rules_;
  std::optional<inter::AlgorithmTable> table_;
  std::string complaint_;
};

}  // namespace aiacc::tools
