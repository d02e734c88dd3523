// fp16 to fp32 and back by F16C, eight numbers at a time: what kernels_half.h does without it, with the same bits.
// Included by a kernel unit inside its namespace, after immintrin.h.

typedef unsigned short HalfBits __attribute__((vector_size(16)));
typedef float HalfWide __attribute__((vector_size(32)));
inline HalfWide widen_half(HalfBits half) { return (HalfWide)_mm256_cvtph_ps((__m128i)half); }
inline HalfBits narrow_half(HalfWide value) {
  return (HalfBits)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
}
