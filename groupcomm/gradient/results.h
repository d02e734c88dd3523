// Results: brings what launches leave into the slots of this rank's tensors.
//
// A tensor that some rank gave zeros for is owed (negotiator.h): what its launch left is kept until the follow-up brings the
// rest, and only then it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/data/cpu_compute.h"
#include "groupcomm/gradient/launches.h"

namespace aiacc::gradient {

class Results {
 public:
  // The flight has ended. True: the part's tensor is complete with it.
  bool finish(const Launches::Flight& flight, Launches::Part& part);

 private:
  bool finish_rows(const Launches::Flight& flight, Launches::Part& part);
  void add_up(const Kind& kind, std::byte* into, const std::byte* other, std::size_t bytes);

  CpuCompute sums_;  // slots are memory of the host
  // Of launches that this rank gave zeros to, by agreed index.
  std::map<std::uint32_t, std::vector<std::byte>> first_;
  std::map<std::uint32_t, Rows> first_rows_;
};

}  // namespace aiacc::gradient
