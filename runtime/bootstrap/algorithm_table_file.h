// The table of algorithms of a job (AIACC_ALGORITHM_TABLE): rank 0 reads the file before the job comes together, and every rank
// takes what rank 0 sent. Ranks never choose by different tables, whatever their hosts have at that path.
//
// A table that cannot be read or does not fit is a warning and not an error: the results are the same without it, and a job
// that waited for its hosts should not end for a file that only makes it faster.
#pragma once

#include <string>

#include "runtime/runtime_config.h"

namespace aiacc {

class NetworkPorts;
struct BootstrapResult;

struct AlgorithmTableFile {
  std::string text;       // for the other ranks; "": there is none to use
  std::string complaint;  // a sentence; "": none
};

// Local. Refuses a table that was measured with other settings than those of this rank.
AlgorithmTableFile read_algorithm_table(const RuntimeConfig& config);

// Once `networks` are open, and the rank of `bootstrapped` known: takes rank 0's table unless it was measured over another
// transport, which rank 0 remarks. All ranks decide alike. Throws kProtocol if this rank
// cannot read what rank 0 could.
void take_algorithm_table(const NetworkPorts& networks, BootstrapResult& bootstrapped);

}  // namespace aiacc
