// Operators for reductions: those of the library, and user-defined ones on records. Part of aiacc.hpp.
#ifndef AIACC_OPERATORS_HPP
#define AIACC_OPERATORS_HPP

#include <aiacc/aiacc.h>
#include <aiacc/elements.hpp>
#include <aiacc/error.hpp>

#include <cstddef>
#include <cstring>
#include <ranges>
#include <type_traits>
#include <utility>

namespace aiacc {
inline namespace v0 {

inline constexpr aiacc_op_t sum = AIACC_SUM;
inline constexpr aiacc_op_t avg = AIACC_AVG;
inline constexpr aiacc_op_t prod = AIACC_PROD;
inline constexpr aiacc_op_t min = AIACC_MIN;
inline constexpr aiacc_op_t max = AIACC_MAX;
inline constexpr aiacc_op_t band = AIACC_BAND;
inline constexpr aiacc_op_t bor = AIACC_BOR;
inline constexpr aiacc_op_t bxor = AIACC_BXOR;

struct OperatorOptions {
  const char *name = nullptr;  // compared between ranks
  bool commutative = false;    // operands may be exchanged, which is faster over several hosts
};

// Operands of a user-defined operator: trivially copyable data of at most 512 bytes.
template <class T>
concept Record = std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T> && sizeof(T) <= 512;

// An operator on records: `combine(a, b)` sets a to a op b, where a is the lower ranks' operand. It must be
// associative, is called on any thread, must not call aiacc, and has no state (a lambda without captures), because
// operations may outlive it.
//   aiacc::Operator<Moments> merge([](Moments &all, const Moments &more) { ... }, {.name = "moments"});
template <Record T>
class Operator {
 public:
  template <class Combine>
  requires std::is_empty_v<Combine> && std::is_default_constructible_v<Combine> &&
      std::is_invocable_v<Combine, T &, const T &>
  explicit Operator(Combine, const OperatorOptions &options = {}) {
    aiacc_op_attr_t attr{};
    attr.size = sizeof attr;
    attr.name = options.name;
    attr.commutative = options.commutative ? 1 : 0;
    check(aiacc_op_create(&combine_all<Combine>, nullptr, sizeof(T), &attr, &op_));
    owned_ = true;
  }
  Operator(Operator &&other) noexcept : op_(other.op_), owned_(std::exchange(other.owned_, false)) {}
  Operator &operator=(Operator &&other) noexcept {
    std::swap(op_, other.op_);
    std::swap(owned_, other.owned_);
    return *this;
  }
  ~Operator() {
    if (owned_) aiacc_op_free(op_);
  }
  aiacc_op_t handle() const noexcept { return op_; }

 private:
  // Records may have any alignment, so they are copied to an aligned T.
  template <class Combine>
  static void combine_all(void *inout, const void *in, std::size_t records, void *) {
    auto *all = static_cast<std::byte *>(inout);
    const auto *more = static_cast<const std::byte *>(in);
    for (std::size_t i = 0; i < records * sizeof(T); i += sizeof(T)) {
      T left;
      T right;
      std::memcpy(&left, all + i, sizeof(T));
      std::memcpy(&right, more + i, sizeof(T));
      Combine{}(left, std::as_const(right));
      std::memcpy(all + i, &left, sizeof(T));
    }
  }
  aiacc_op_t op_ = AIACC_SUM;
  bool owned_ = false;
};

namespace detail {

template <class T>
constexpr aiacc_dtype_t type_for(aiacc_op_t) {
  return dtype_of<T>;
}
template <class T>
constexpr aiacc_dtype_t type_for(const Operator<T> &) {
  return AIACC_RECORD;
}
constexpr aiacc_op_t handle_of(aiacc_op_t op) { return op; }
template <class T>
aiacc_op_t handle_of(const Operator<T> &op) {
  return op.handle();
}

}  // namespace detail

// Operators on T: those of the library if T is an element type, or a user-defined one on T.
template <class Op, class T>
concept Reducing = (std::is_same_v<Op, aiacc_op_t> && Element<T>) || std::is_same_v<Op, Operator<std::remove_cv_t<T>>>;

// Ranges that Op reduces, and ranges for its result.
template <class R, class Op>
concept Operands =
    std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && Reducing<Op, std::ranges::range_value_t<R>>;
template <class R, class Op>
concept Results = Operands<R, Op> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

}  // namespace v0
}  // namespace aiacc

#endif
