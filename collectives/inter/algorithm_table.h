// AlgorithmTable: which algorithm between hosts was the fastest where it was measured (aiacc-tune, AIACC_ALGORITHM_TABLE).
//
// Its text, as in the file and on its way from rank 0 to the others, is lines of words; those that begin with # are remarks:
//
//   aiacc-algorithm-table 1
//   measured-on a b c d                        the hosts, one rank on each; for people
//   transport tcp
//   streams 1                                  AIACC_TCP_STREAMS
//   encrypt none                               AIACC_ENCRYPT
//   allreduce 4 plain 8192 131072 ring         among 4 ranks of as many hosts, of more than 8192 and up to 131072 bytes
//   allreduce 4 16-bit 0 2048 one-round        the same of 16-bit floats
//   end                                        without it the file is not whole
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace aiacc::inter {

struct AlgorithmInfo;
struct Shape;

class AlgorithmTable {
 public:
  static constexpr std::string_view kFirstWord = "aiacc-algorithm-table";
  static constexpr int kVersion = 1;
  // A message of the bootstrap has the addresses of many ranks and one table.
  static constexpr std::size_t kMostBytes = 64 << 10;

  // What the times depend on besides the shape of a call.
  struct Conditions {
    std::vector<std::string> hosts;
    std::string transport;
    std::string streams;
    std::string encryption;
  };
  struct Choice {
    const AlgorithmInfo* algorithm = nullptr;
    int ranks = 0;         // as Shape has it
    bool narrows = false;  // likewise
    std::size_t above = 0;
    std::size_t up_to = 0;  // bytes, as Shape counts them
    bool operator==(const Choice&) const = default;
  };

  AlgorithmTable(Conditions conditions, std::vector<Choice> choices);
  // Throws kInvalidArgument with one sentence that begins with `name`.
  static AlgorithmTable parse(std::string_view name, std::string_view text);

  // Null: the table does not say, or the algorithm cannot serve such a call.
  const AlgorithmInfo* find(const Shape& shape) const noexcept;

  const Conditions& conditions() const noexcept { return conditions_; }
  const std::vector<Choice>& choices() const noexcept { return choices_; }
  // What parse() reads. kWithoutHosts: for the other ranks.
  enum class Extent { kWhole, kWithoutHosts };
  std::string text(Extent extent = Extent::kWhole) const;

 private:
  Conditions conditions_;
  std::vector<Choice> choices_;
};

}  // namespace aiacc::inter
