// The output: nccl-tests' table with additional columns, or JSON, one object per line. Only rank 0 prints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/perf/measure.h"

namespace aiacc::tools {

std::string count_of_ranks(int ranks);  // "1 rank", "2 ranks"

// The setup of the measurement: lines that begin with '#', or an object whose "kind" is "setup".
std::string setup_text(const World& world, const PerfOptions& options, const std::optional<MemoryBandwidth>& memory);
std::string heading_text();
std::string row_text(const Row& row);
std::string summary_text(const std::vector<Row>& rows, const PerfOptions& options);

std::string setup_json(const World& world, const PerfOptions& options, const std::optional<MemoryBandwidth>& memory);
std::string row_json(const Row& row);

std::uint64_t all_wrong(const std::vector<Row>& rows);

}  // namespace aiacc::tools
