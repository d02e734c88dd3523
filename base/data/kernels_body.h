// The reduction kernels, compiled once for every instruction set. A unit (kernels_baseline.cc, kernels_avx2.cc …) is
// compiled with its own -m flags, opens its own namespace, defines kVectorBytes and the conversions of fp16, and then
// includes this file inside that namespace. Everything here must therefore belong to that namespace: the linker might
// use a template of the standard library that was instantiated here with wide instructions in all other units.
//
// The arithmetic uses GCC's vector types, so every vector element is computed alike at every width, and the end of an
// array is padded and goes through the same vector code: a result does not depend on an element's position in the
// array. Compiled with -ffp-contract=off, because a fused multiply-add would round differently in different instruction
// sets.

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long;

template <class T, int Bytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(Bytes)));
};
template <class T, int Bytes = kVectorBytes>
using Vec = typename VectorOf<T, Bytes>::type;

template <int Bytes>
struct Integers;  // of the width of an element
template <>
struct Integers<4> {
  using Signed = int;
  static constexpr int kMagnitude = 0x7fffffff;
};
template <>
struct Integers<8> {
  using Signed = long;
  static constexpr long kMagnitude = 0x7fffffffffffffff;
};

template <class V>
inline V load_bytes(const std::byte* from) {
  V value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
template <class V>
inline void store_bytes(std::byte* to, V value) {
  __builtin_memcpy(to, &value, sizeof value);
}

// --- element types: their storage, and the vector in which they are accumulated --------------------------------------

template <class T>
struct UnsignedOf {
  using type = T;
};
template <>
struct UnsignedOf<signed char> {
  using type = u8;
};
template <>
struct UnsignedOf<short> {
  using type = u16;
};
template <>
struct UnsignedOf<int> {
  using type = u32;
};
template <>
struct UnsignedOf<long> {
  using type = u64;
};

template <class T>
struct Plain {
  using Element = T;
  using Acc = Vec<T>;
  using Wrapping = Vec<typename UnsignedOf<T>::type>;
  static constexpr bool kFloat = (T)0.5 != (T)0;
  static constexpr int kStoredBytes = sizeof(Acc);
  static constexpr int kResultBytes = kStoredBytes;
  static Acc load(const std::byte* from) { return load_bytes<Acc>(from); }
  static Acc pack(Acc value) { return value; }
};

struct Bool {
  using Element = bool;
  using Acc = Vec<u8>;
  using Wrapping = Acc;
  static constexpr bool kFloat = false;
  static constexpr int kStoredBytes = sizeof(Acc);
  static constexpr int kResultBytes = kStoredBytes;
  static Acc load(const std::byte* from) { return (Acc)(load_bytes<Acc>(from) != 0) & 1; }
  static Acc pack(Acc value) { return value; }
};

using StoredHalf = Vec<u16, kVectorBytes / 2>;
using Wide = Vec<float>;
using WideBits = Vec<u32>;

struct Half {
  using Element = float;
  using Acc = Wide;
  using Wrapping = Acc;
  static constexpr bool kFloat = true;
  static constexpr int kStoredBytes = kVectorBytes / 2;
  static constexpr int kResultBytes = kStoredBytes;
  static Acc load(const std::byte* from) { return widen_half(load_bytes<StoredHalf>(from)); }
  static StoredHalf pack(Acc value) { return narrow_half(value); }
};

struct BFloat {
  using Element = float;
  using Acc = Wide;
  using Wrapping = Acc;
  static constexpr bool kFloat = true;
  static constexpr int kStoredBytes = kVectorBytes / 2;
  static constexpr int kResultBytes = kStoredBytes;
  static Acc load(const std::byte* from) {
    return (Acc)(__builtin_convertvector(load_bytes<StoredHalf>(from), WideBits) << 16);
  }
  // Round to nearest, ties to even; a NaN keeps its sign and upper payload and becomes quiet.
  static StoredHalf pack(Acc value) {
    const WideBits bits = (WideBits)value;
    const WideBits rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const WideBits quiet = (bits >> 16) | 0x40;
    return __builtin_convertvector((value != value) ? quiet : rounded, StoredHalf);
  }
};

// Partial sums of a 16-bit type L, as results and as operands in the accumulate type.
template <class L>
struct Widened16 : L {
  static constexpr int kResultBytes = sizeof(Wide);
  static Wide pack(Wide value) { return value; }
};
template <class L>
struct Narrowed16 : L {
  static constexpr int kStoredBytes = sizeof(Wide);
  static Wide load(const std::byte* from) { return load_bytes<Wide>(from); }
};

// --- operators -------------------------------------------------------------------------------------------------------

// Integers wrap: sums and products are computed in the unsigned type, where overflow is defined.
struct Add {
  template <class L, class V>
  static V apply(V a, V b) {
    using Wrapping = typename L::Wrapping;
    return (V)((Wrapping)a + (Wrapping)b);
  }
};
struct Multiply {
  template <class L, class V>
  static V apply(V a, V b) {
    using Wrapping = typename L::Wrapping;
    return (V)((Wrapping)a * (Wrapping)b);
  }
};
struct And {
  template <class L, class V>
  static V apply(V a, V b) {
    return a & b;
  }
};
struct Or {
  template <class L, class V>
  static V apply(V a, V b) {
    return a | b;
  }
};
struct Xor {
  template <class L, class V>
  static V apply(V a, V b) {
    return a ^ b;
  }
};

struct Lesser {
  template <class V>
  static V pick(V key_a, V key_b, V a, V b) {
    return key_b < key_a ? b : a;
  }
};
struct Greater {
  template <class V>
  static V pick(V key_a, V key_b, V a, V b) {
    return key_b > key_a ? b : a;
  }
};
template <class Order>
struct IntegerExtreme {
  template <class L, class V>
  static V apply(V a, V b) {
    return Order::pick(a, b, a, b);
  }
};
// Maps sign and magnitude to two's complement: an integer order in which -0 is below +0. The first NaN in rank order is
// the result, with its payload.
template <class Order>
struct FloatExtreme {
  template <class L, class V>
  static V apply(V a, V b) {
    using Int = Integers<sizeof(typename L::Element)>;
    using Bits = Vec<typename Int::Signed, sizeof(V)>;
    const Bits bits_a = (Bits)a;
    const Bits bits_b = (Bits)b;
    const Bits key_a = bits_a ^ ((bits_a >> (8 * sizeof(typename L::Element) - 1)) & Int::kMagnitude);
    const Bits key_b = bits_b ^ ((bits_b >> (8 * sizeof(typename L::Element) - 1)) & Int::kMagnitude);
    const Bits ordered = Order::pick(key_a, key_b, bits_a, bits_b);
    return (V)((a != a) ? bits_a : ((b != b) ? bits_b : ordered));
  }
};

// --- scales ----------------------------------------------------------------------------------------------------------

// Integers are scaled in fp64, truncated towards zero and clamped to the range of their type (NaN becomes 0).
template <class T>
inline T scale_integer(T value, double by) {
  constexpr bool kSigned = (T)-1 < (T)0;
  constexpr int kValueBits = 8 * sizeof(T) - (kSigned ? 1 : 0);
  constexpr double kTooLarge = 2.0 * (double)((u64)1 << (kValueBits - 1));
  constexpr T kLargest = (T)(~(u64)0 >> (64 - kValueBits));
  constexpr T kSmallest = kSigned ? (T)(-kLargest - 1) : (T)0;
  const double scaled = (double)value * by;
  if (scaled != scaled) return 0;
  if (scaled >= kTooLarge) return kLargest;
  if (scaled <= (double)kSmallest) return kSmallest;
  return (T)scaled;
}

template <bool Signed>
struct Widened {
  using type = u64;
};
template <>
struct Widened<true> {
  using type = long;
};

template <class T>
struct Scale {  // integers, element by element; rare, so one copy per type and no inlining
  template <class V>
  [[gnu::noinline]] static V multiply(V value, double by) {
    for (unsigned i = 0; i < sizeof(V) / sizeof(T); ++i) value[i] = scale_integer<T>(value[i], by);
    return value;
  }
  template <class V>
  [[gnu::noinline]] static V divide(V value, double by) {
    using Widest = typename Widened<((T)-1 < (T)0)>::type;
    for (unsigned i = 0; i < sizeof(V) / sizeof(T); ++i) value[i] = (T)((Widest)value[i] / (Widest)by);
    return value;
  }
};
template <class T>
struct ScaleFloat {
  template <class V>
  static V multiply(V value, double by) {
    return value * (T)by;
  }
  template <class V>
  static V divide(V value, double by) {
    return value / (T)by;
  }
};
template <>
struct Scale<float> : ScaleFloat<float> {};
template <>
struct Scale<double> : ScaleFloat<double> {};
template <>
struct Scale<bool> {  // scales have no effect on bool
  template <class V>
  static V multiply(V value, double) {
    return value;
  }
  template <class V>
  static V divide(V value, double) {
    return value;
  }
};

// --- the loop --------------------------------------------------------------------------------------------------------

struct Unscaled {
  explicit Unscaled(const Job&) {}
  template <class V>
  V first(V value) const {
    return value;
  }
  template <class V>
  V last(V value) const {
    return value;
  }
};

template <class L>
struct Scaled {
  using On = Scale<typename L::Element>;
  double prescale, divisor, postscale;

  explicit Scaled(const Job& job) : prescale(job.prescale), divisor(job.divisor), postscale(job.postscale) {}
  template <class V>
  V first(V value) const {
    return prescale == 1.0 ? value : On::multiply(value, prescale);
  }
  template <class V>
  V last(V value) const {
    if (divisor != 1.0) value = On::divide(value, divisor);
    return postscale == 1.0 ? value : On::multiply(value, postscale);
  }
};

// The byte offset of the results for the elements at byte `at` of the operands.
template <class L>
constexpr std::size_t result_at(std::size_t at) {
  if constexpr (L::kResultBytes > L::kStoredBytes) return at * (L::kResultBytes / L::kStoredBytes);
  return at / (L::kStoredBytes / L::kResultBytes);
}

// Reduces `Vectors` vectors of every operand from byte `at`. All are loaded before any result is stored, so a
// destination may be one of the operands. `Operands` is their number, or 0 if it is known at run time only.
template <class L, class Op, class Scales, int Operands, int Vectors>
inline void reduce_block(const Job& job, const Scales& scales, std::size_t at) {
  using Acc = typename L::Acc;
  const std::size_t operands = Operands != 0 ? (std::size_t)Operands : job.operand_count;
  Acc sum[Vectors];
  for (int v = 0; v < Vectors; ++v) sum[v] = scales.first(L::load(job.operands[0] + at + v * L::kStoredBytes));
  for (std::size_t k = 1; k < operands; ++k) {
    const std::byte* from = job.operands[k] + at;
    for (int v = 0; v < Vectors; ++v) {
      sum[v] = Op::template apply<L>(sum[v], scales.first(L::load(from + v * L::kStoredBytes)));
    }
  }
  for (int v = 0; v < Vectors; ++v) sum[v] = scales.last(sum[v]);
  for (std::size_t d = 0; d < job.destination_count; ++d) {
    std::byte* to = job.destinations[d] + result_at<L>(at);
    for (int v = 0; v < Vectors; ++v) store_bytes(to + v * L::kResultBytes, L::pack(sum[v]));
  }
}

// Less than a vector, with zeros behind it. A single element of 4 or 8 bytes, or two, is all of many calls and stays in registers: a
// vector that is loaded from where a part of it has just been stored waits until that has reached the cache.
template <class L>
inline auto load_rest(const std::byte* from, std::size_t bytes) {
  using Words = Vec<u64, L::kStoredBytes>;
  const auto load = [](Words words) { return L::load(reinterpret_cast<const std::byte*>(&words)); };
  if (bytes == 8) return load(Words{load_bytes<u64>(from)});
  if (bytes == 4) return load(Words{load_bytes<u32>(from)});
  alignas(kVectorBytes) std::byte padded[L::kStoredBytes] = {};
  __builtin_memcpy(padded, from, bytes);
  return L::load(padded);
}
template <class V>
inline void store_rest(std::byte* to, const V& value, std::size_t bytes) {
  if (bytes == 8) {
    __builtin_memcpy(to, &value, 8);
  } else if (bytes == 4) {
    __builtin_memcpy(to, &value, 4);
  } else {
    alignas(kVectorBytes) const V stored = value;
    __builtin_memcpy(to, &stored, bytes);
  }
}

// The rest at the end, less than a vector: padded copies go through the same code.
template <class L, class Op, class Scales>
inline void reduce_rest(const Job& job, const Scales& scales, std::size_t at, std::size_t bytes) {
  using Acc = typename L::Acc;
  Acc sum = scales.first(load_rest<L>(job.operands[0] + at, bytes));
  for (std::size_t k = 1; k < job.operand_count; ++k) {
    sum = Op::template apply<L>(sum, scales.first(load_rest<L>(job.operands[k] + at, bytes)));
  }
  const auto result = L::pack(scales.last(sum));
  for (std::size_t d = 0; d < job.destination_count; ++d) {
    store_rest(job.destinations[d] + result_at<L>(at), result, result_at<L>(bytes));
  }
}

template <class L, class Op, class Scales, int Operands>
void reduce_all(const Job& job) {
  constexpr int kVectors = 4;
  constexpr std::size_t kBlockBytes = kVectors * L::kStoredBytes;
  const Scales scales(job);
  const std::size_t bytes = job.count * (L::kStoredBytes / (sizeof(typename L::Acc) / sizeof(typename L::Element)));
  std::size_t at = 0;
  for (; at + kBlockBytes <= bytes; at += kBlockBytes) {
    reduce_block<L, Op, Scales, Operands, kVectors>(job, scales, at);
  }
  for (; at + L::kStoredBytes <= bytes; at += L::kStoredBytes) {
    reduce_block<L, Op, Scales, Operands, 1>(job, scales, at);
  }
  if (at < bytes) reduce_rest<L, Op>(job, scales, at, bytes - at);
}

// Two to four operands and floats are the usual case and have specialised loops; other cases share one.
template <class L, class Op>
void reduce(const Job& job) {
  if (job.scaled()) return reduce_all<L, Op, Scaled<L>, 0>(job);
  if constexpr (!L::kFloat) {
    return reduce_all<L, Op, Unscaled, 0>(job);
  } else {
    switch (job.operand_count) {
      case 2: return reduce_all<L, Op, Unscaled, 2>(job);
      case 3: return reduce_all<L, Op, Unscaled, 3>(job);
      case 4: return reduce_all<L, Op, Unscaled, 4>(job);
      default: return reduce_all<L, Op, Unscaled, 0>(job);
    }
  }
}

// --- the table -------------------------------------------------------------------------------------------------------

template <class L, template <class> class Extreme>
void fill(Table& table, DType type) {
  Function* of = table.reduce[(int)type];
  of[(int)ReduceOp::kSum] = reduce<L, Add>;
  of[(int)ReduceOp::kAvg] = reduce<L, Add>;
  of[(int)ReduceOp::kProd] = reduce<L, Multiply>;
  of[(int)ReduceOp::kMin] = reduce<L, Extreme<Lesser>>;
  of[(int)ReduceOp::kMax] = reduce<L, Extreme<Greater>>;
}

template <class L>
void fill_partial(Table& table, DType type) {
  Function* widen = table.widen[(int)type];
  Function* narrow = table.narrow[(int)type];
  widen[(int)ReduceOp::kSum] = widen[(int)ReduceOp::kAvg] = reduce<Widened16<L>, Add>;
  widen[(int)ReduceOp::kProd] = reduce<Widened16<L>, Multiply>;
  narrow[(int)ReduceOp::kSum] = narrow[(int)ReduceOp::kAvg] = reduce<Narrowed16<L>, Add>;
  narrow[(int)ReduceOp::kProd] = reduce<Narrowed16<L>, Multiply>;
}

template <class T>
void fill_integer(Table& table, DType type) {
  fill<Plain<T>, IntegerExtreme>(table, type);
  Function* of = table.reduce[(int)type];
  of[(int)ReduceOp::kBitAnd] = reduce<Plain<T>, And>;
  of[(int)ReduceOp::kBitOr] = reduce<Plain<T>, Or>;
  of[(int)ReduceOp::kBitXor] = reduce<Plain<T>, Xor>;
}

// SUM and MAX are OR; PROD, MIN and AVG (a mean of zeros and ones, truncated) are AND.
inline void fill_bool(Table& table) {
  Function* of = table.reduce[(int)DType::kBool];
  of[(int)ReduceOp::kSum] = of[(int)ReduceOp::kMax] = of[(int)ReduceOp::kBitOr] = reduce<Bool, Or>;
  of[(int)ReduceOp::kProd] = of[(int)ReduceOp::kMin] = of[(int)ReduceOp::kBitAnd] = reduce<Bool, And>;
  of[(int)ReduceOp::kAvg] = reduce<Bool, And>;
  of[(int)ReduceOp::kBitXor] = reduce<Bool, Xor>;
}

inline Table make_table() {
  Table table;
  table.name = kName;
  fill_integer<signed char>(table, DType::kInt8);
  fill_integer<u8>(table, DType::kUInt8);
  fill_integer<short>(table, DType::kInt16);
  fill_integer<u16>(table, DType::kUInt16);
  fill_integer<int>(table, DType::kInt32);
  fill_integer<u32>(table, DType::kUInt32);
  fill_integer<long>(table, DType::kInt64);
  fill_integer<u64>(table, DType::kUInt64);
  fill<Half, FloatExtreme>(table, DType::kFloat16);
  fill<BFloat, FloatExtreme>(table, DType::kBFloat16);
  fill_partial<Half>(table, DType::kFloat16);
  fill_partial<BFloat>(table, DType::kBFloat16);
  fill<Plain<float>, FloatExtreme>(table, DType::kFloat32);
  fill<Plain<double>, FloatExtreme>(table, DType::kFloat64);
  fill_bool(table);
  return table;
}
