// Element types, and ranges of elements as buffers. Part of aiacc.hpp.
#ifndef AIACC_ELEMENTS_HPP
#define AIACC_ELEMENTS_HPP

#include <aiacc/aiacc.h>

#include <cstddef>
#include <cstdint>
#include <ranges>
#include <type_traits>

namespace aiacc {
inline namespace v0 {

// The bits of 16-bit floats: cast buffers of other 16-bit types to these.
struct float16 {
  std::uint16_t bits;
};
struct bfloat16 {
  std::uint16_t bits;
};

namespace detail {

template <class T>
constexpr int dtype_or_none() {
  if constexpr (std::is_same_v<T, bool>)
    return AIACC_BOOL;
  else if constexpr (std::is_same_v<T, float>)
    return AIACC_FLOAT32;
  else if constexpr (std::is_same_v<T, double>)
    return AIACC_FLOAT64;
  else if constexpr (std::is_same_v<T, float16>)
    return AIACC_FLOAT16;
  else if constexpr (std::is_same_v<T, bfloat16>)
    return AIACC_BFLOAT16;
  else if constexpr (std::is_same_v<T, std::byte>)
    return AIACC_UINT8;
  else if constexpr (std::is_integral_v<T> && sizeof(T) <= 8) {
    constexpr int width = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 2 : sizeof(T) == 4 ? 4 : 6;
    return width + (std::is_signed_v<T> ? 0 : 1);
  } else
    return -1;
}

}  // namespace detail

template <class T>
concept Element = detail::dtype_or_none<std::remove_cv_t<T>>()
>= 0;

template <Element T>
inline constexpr aiacc_dtype_t dtype_of = static_cast<aiacc_dtype_t>(detail::dtype_or_none<std::remove_cv_t<T>>());

template <class R>
concept Elements =
    std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && Element<std::ranges::range_value_t<R>>;

// Writable ranges.
template <class R>
concept Buffer = Elements<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

}  // namespace v0
}  // namespace aiacc

#endif
