// Selector: the choice of an algorithm for each call of a group between hosts, and what the user is told about it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/inter/algorithm_rules.h"

namespace aiacc::inter {

struct AlgorithmInfo;
class AlgorithmTable;
struct Shape;

// A permitted algorithm that can serve the call: the one that its caller prefers, if any, unless the payload is short; then the one of
// the table, if there is one (null: no table); otherwise the usual one, if it is permitted. Null: no permitted one can.
const AlgorithmInfo* permitted_algorithm(const Shape& shape, const AlgorithmRules& rules,
                                         const AlgorithmTable* table = nullptr) noexcept;

// Other permitted algorithms that can serve such a call and, by what is predicted, take at most twice as long as the fastest; at most
// `most`, the fastest first. What a caller that measures may prefer.
std::vector<const AlgorithmInfo*> alternatives(const Shape& shape, const AlgorithmRules& rules,
                                               const AlgorithmTable* table, std::size_t most);

// Why calls of this shape get their algorithm, as a noun or clause.
std::string_view reason_of_choice(const Shape& shape, const AlgorithmRules& rules,
                                  const AlgorithmTable* table = nullptr) noexcept;

// "allreduce between 8 ranks: recursive-doubling up to 64K, ring above (...)", for calls like `shape` of any length; "*" marks
// what the table chooses.
std::string describe_choices(const Shape& of_any_length, const AlgorithmRules& rules,
                             const AlgorithmTable* table = nullptr);

class Selector {
 public:
  class Listener {
   public:
    virtual void no_permitted_algorithm(const std::string& sentence) noexcept = 0;
    // Whether it wants to know which algorithms are chosen, once for each kind of calls.
    virtual bool wants_choices() const noexcept { return false; }
    virtual void chosen(const std::string&) noexcept {}

   protected:
    ~Listener() = default;
  };

  // All of these outlive it; `table` may be null.
  Selector(const AlgorithmRules& rules, Listener& listener, const AlgorithmTable* table = nullptr) noexcept
      : rules_(rules), table_(table), listener_(listener), wants_choices_(listener.wants_choices()) {}

  // All ranks of a call choose alike, because they have the same rules, the same table and the same shape. `tells`: whether
  // this rank tells the user, once for each collective, that no permitted algorithm can serve such a call.
  const AlgorithmInfo& choose(const Shape& shape, bool tells);

  // Tells the listener what is chosen for calls like this one, of any length.
  void tell_choices(const Shape& shape) {
    if (wants_choices_) [[unlikely]]
      tell_new_choices(shape);
  }

 private:
  void tell_new_choices(const Shape& shape);
  void tell_why_none(const Shape& shape, const AlgorithmInfo& instead);

  const AlgorithmRules& rules_;
  const AlgorithmTable* const table_;
  Listener& listener_;
  const bool wants_choices_;
  std::uint32_t told_ = 0;          // by collective
  std::uint64_t told_choices_ = 0;  // by collective and what its reduction demands, or whether it skips the host
};

}  // namespace aiacc::inter
