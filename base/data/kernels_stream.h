// Non-temporal stores, for data that another core reads next. Included by a kernel unit outside its namespace's
// templates; the overload for a width exists if the unit's instruction set has it. Always inline, like everything that
// a unit with wide instructions defines.
//
// The reason: on EPYC (Zen 4, two cores of a virtual machine) writing a line of which another core has a shared copy
// took 11 to 37 ns, and 2 to 3 ns with a non-temporal store, with the same time for the reader.

#include <cstddef>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace aiacc::kernels {
namespace {

#if defined(__x86_64__)
template <class V>
requires(sizeof(V) == 8) [[gnu::always_inline]] inline void stream_bytes(std::byte* to, V value) {
  _mm_stream_si64(reinterpret_cast<long long*>(to), (long long)value);
}
template <class V>
requires(sizeof(V) == 16) [[gnu::always_inline]] inline void stream_bytes(std::byte* to, V value) {
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), (__m128i)value);
}
[[gnu::always_inline]] inline void stream_fence() { _mm_sfence(); }
#else
template <class V>
[[gnu::always_inline]] inline void stream_bytes(std::byte* to, V value) {
  __builtin_memcpy(to, &value, sizeof value);
}
[[gnu::always_inline]] inline void stream_fence() {}
#endif

#if defined(__AVX2__)
template <class V>
requires(sizeof(V) == 32) [[gnu::always_inline]] inline void stream_bytes(std::byte* to, V value) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), (__m256i)value);
}
#endif

#if defined(__AVX512F__)
template <class V>
requires(sizeof(V) == 64) [[gnu::always_inline]] inline void stream_bytes(std::byte* to, V value) {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), (__m512i)value);
}
#endif

}  // namespace
}  // namespace aiacc::kernels
