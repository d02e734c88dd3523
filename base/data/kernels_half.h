// fp16 to fp32 and back with integer arithmetic, for processors without instructions for it. The bits equal those of
// VCVTPH2PS and VCVTPS2PH: round to nearest, ties to even; subnormals are exact; a NaN becomes quiet and keeps its
// upper payload.
// Included by a kernel unit inside its namespace, after kVectorBytes.

typedef unsigned short HalfBits __attribute__((vector_size(kVectorBytes / 2)));
typedef unsigned int HalfWideBits __attribute__((vector_size(kVectorBytes)));
typedef float HalfWide __attribute__((vector_size(kVectorBytes)));

inline HalfWide widen_half(HalfBits half) {
  const HalfWideBits bits = __builtin_convertvector(half, HalfWideBits);
  const HalfWideBits sign = (bits & 0x8000) << 16;
  const HalfWideBits magnitude = bits & 0x7fff;
  const HalfWideBits normal = (magnitude << 13) + (112u << 23);
  const HalfWideBits special =
      (magnitude << 13) | 0x7f800000u | ((magnitude > 0x7c00) ? HalfWideBits{} + 0x400000u : HalfWideBits{});
  const HalfWide tiny = __builtin_convertvector(magnitude, HalfWide) * 0x1p-24f;
  const HalfWideBits finite = (magnitude < 0x400) ? (HalfWideBits)tiny : normal;
  return (HalfWide)(sign | ((magnitude >= 0x7c00) ? special : finite));
}

inline HalfBits narrow_half(HalfWide value) {
  const HalfWideBits bits = (HalfWideBits)value;
  const HalfWideBits sign = (bits >> 16) & 0x8000;
  const HalfWideBits magnitude = bits & 0x7fffffff;
  const HalfWideBits normal = (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  // Adding 0.5 moves the subnormal's last bit to the last bit of the sum, which the addition rounds.
  const HalfWideBits tiny = (HalfWideBits)((HalfWide)magnitude + 0.5f) - 0x3f000000u;
  const HalfWideBits quiet = ((magnitude >> 13) & 0x3ff) | 0x7e00;
  const HalfWideBits finite = (magnitude < 0x38800000) ? tiny : normal;
  const HalfWideBits large = (magnitude > 0x7f800000) ? quiet : (HalfWideBits{} + 0x7c00);
  return __builtin_convertvector(sign | ((magnitude >= 0x47800000) ? large : finite), HalfBits);
}
