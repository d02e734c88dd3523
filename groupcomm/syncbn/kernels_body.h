// The passes over a batch, compiled once for every instruction set, as base/data/kernels_body.h is: a unit opens its own
// namespace, and includes this file inside of it after base/data/kernels_half.h or kernels_half_f16c.h. Everything here
// belongs to that namespace.
//
// Elements are processed eight at a time in fp64, whatever their type: fp64 costs less time than reading the memory. GCC
// keeps a vector that is wider than a register in memory, so eight numbers are parts of AIACC_REGISTER_BYTES; for the same reason
// all that has such numbers is inlined. Of the last elements of a row eight are read, too, with what follows them in the
// batch; at its end they are padded.

using std::byte;
using std::size_t;
#define AIACC_INLINE __attribute__((always_inline))
constexpr size_t kLanes = 8;
static_assert(kLanes == kTakenTogether);
constexpr size_t kPartLanes = AIACC_REGISTER_BYTES / sizeof(double);

template <class Part>
struct Two {
  Part low, high;
};
template <class Number, size_t Lanes>
struct LanesOf {
  using type = Two<typename LanesOf<Number, Lanes / 2>::type>;
};
template <class Number>
struct LanesOf<Number, kPartLanes> {
  typedef Number type __attribute__((vector_size(kPartLanes * sizeof(Number))));
};
using Wide = LanesOf<double, kLanes>::type;
using Single = LanesOf<float, kLanes>::type;
using Mask = LanesOf<long, kLanes>::type;
typedef float EightSingles __attribute__((vector_size(kLanes * sizeof(float))));
typedef unsigned short Half __attribute__((vector_size(kLanes * sizeof(unsigned short))));
typedef unsigned int Word __attribute__((vector_size(kLanes * sizeof(unsigned int))));

template <class Part>
AIACC_INLINE inline Two<Part> operator+(const Two<Part>& a, const Two<Part>& b) {
  return {a.low + b.low, a.high + b.high};
}
template <class Part>
AIACC_INLINE inline Two<Part> operator-(const Two<Part>& a, const Two<Part>& b) {
  return {a.low - b.low, a.high - b.high};
}
template <class Part>
AIACC_INLINE inline Two<Part> operator*(const Two<Part>& a, const Two<Part>& b) {
  return {a.low * b.low, a.high * b.high};
}

// The functions on vectors, of one part and of two. Conversions that have an instruction are written out: GCC 12 makes several
// instructions of __builtin_convertvector.
template <class To, class From>
struct Convert {
  AIACC_INLINE static To of(const From& from) {
#if AIACC_REGISTER_BYTES == 64
    if constexpr (sizeof(To) == 64) return (To)_mm512_maskz_cvtps_pd(0xff, (__m256)from);
    if constexpr (sizeof(From) == 64) return (To)_mm512_maskz_cvtpd_ps(0xff, (__m512d)from);
#elif AIACC_REGISTER_BYTES == 32
    if constexpr (sizeof(To) == 32) return (To)_mm256_cvtps_pd((__m128)from);
    if constexpr (sizeof(From) == 32) return (To)_mm256_cvtpd_ps((__m256d)from);
#endif
    return __builtin_convertvector(from, To);
  }
};
template <class To, class From>
struct Convert<Two<To>, Two<From>> {
  AIACC_INLINE static Two<To> of(const Two<From>& from) {
    return {Convert<To, From>::of(from.low), Convert<To, From>::of(from.high)};
  }
};
AIACC_INLINE inline Word words_of(const Half& half) {
#if AIACC_REGISTER_BYTES >= 32
  return (Word)_mm256_cvtepu16_epi32((__m128i)half);
#else
  return __builtin_convertvector(half, Word);
#endif
}
// Of words below 2^16.
AIACC_INLINE inline Half halves_of(const Word& word) {
#if AIACC_REGISTER_BYTES >= 32
  return (Half)_mm_packus_epi32(_mm256_castsi256_si128((__m256i)word), _mm256_extracti128_si256((__m256i)word, 1));
#else
  return __builtin_convertvector(word, Half);
#endif
}
template <class Vector>
struct Memory {
  AIACC_INLINE static Vector load(const byte* from) {
    Vector value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
  }
  AIACC_INLINE static void store(byte* to, const Vector& value) { __builtin_memcpy(to, &value, sizeof value); }
};
template <class Part>
struct Memory<Two<Part>> {
  AIACC_INLINE static Two<Part> load(const byte* from) {
    return {Memory<Part>::load(from), Memory<Part>::load(from + sizeof(Part))};
  }
  AIACC_INLINE static void store(byte* to, const Two<Part>& value) {
    Memory<Part>::store(to, value.low);
    Memory<Part>::store(to + sizeof(Part), value.high);
  }
};
template <class Vector>
struct Numbers {
  AIACC_INLINE static Vector all(double number) { return Vector{} + number; }
};
template <class Part>
struct Numbers<Two<Part>> {
  AIACC_INLINE static Two<Part> all(double number) { return {Numbers<Part>::all(number), Numbers<Part>::all(number)}; }
};
template <class Vector, class Bits>
AIACC_INLINE inline Vector masked(const Vector& value, const Bits& mask) {
  return (Vector)((Bits)value & mask);
}
template <class Part, class Bits>
AIACC_INLINE inline Two<Part> masked(const Two<Part>& value, const Two<Bits>& mask) {
  return {masked(value.low, mask.low), masked(value.high, mask.high)};
}
// The sum of all lanes: of lane i and lane i + 4, then i + 2, then i + 1.
template <size_t Lanes>
struct SumOfLanes {
  typedef double Whole __attribute__((vector_size(Lanes * sizeof(double))));
  typedef double Part __attribute__((vector_size(Lanes / 2 * sizeof(double))));
  AIACC_INLINE static double sum(const Whole& value) {
    Part part[2];
    __builtin_memcpy(part, &value, sizeof part);
    return SumOfLanes<Lanes / 2>::sum(part[0] + part[1]);
  }
};
template <>
struct SumOfLanes<2> {
  typedef double Whole __attribute__((vector_size(2 * sizeof(double))));
  AIACC_INLINE static double sum(const Whole& value) { return value[0] + value[1]; }
};
template <class Vector>
AIACC_INLINE inline double sum_of(const Vector& value) {
  return SumOfLanes<sizeof(Vector) / sizeof(double)>::sum(value);
}
template <class Part>
AIACC_INLINE inline double sum_of(const Two<Part>& value) {
  return sum_of(value.low + value.high);
}
// Eight numbers in one vector, and in parts.
template <class Part>
AIACC_INLINE inline Part whole_of(const Part& value) {
  return value;
}
template <class Part>
AIACC_INLINE inline auto whole_of(const Two<Part>& value) {
  const auto low = whole_of(value.low), high = whole_of(value.high);
  // A shuffle: two stores followed by one load of both would wait until the stores are in the cache.
  if constexpr (sizeof low == 4 * sizeof(float)) {
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
  } else {
    return __builtin_shufflevector(low, high, 0, 1, 2, 3);
  }
}
AIACC_INLINE inline Single parts_of(const EightSingles& value) { return Memory<Single>::load((const byte*)&value); }

struct Fp64 {
  using Stored = Wide;
  static constexpr size_t kBytes = 8;
  AIACC_INLINE static double one(const byte* from) { return Memory<double>::load(from); }
  AIACC_INLINE static Wide widen(const Stored& value) { return value; }
  AIACC_INLINE static Stored narrow(const Wide& value) { return value; }
};
struct Fp32 {
  using Stored = Single;
  static constexpr size_t kBytes = 4;
  AIACC_INLINE static double one(const byte* from) { return Memory<float>::load(from); }
  AIACC_INLINE static Wide widen(const Stored& value) { return Convert<Wide, Single>::of(value); }
  AIACC_INLINE static Stored narrow(const Wide& value) { return Convert<Single, Wide>::of(value); }
};
struct Fp16 {
  using Stored = Half;
  static constexpr size_t kBytes = 2;
  AIACC_INLINE static double one(const byte* from) { return widen_half(Half{Memory<unsigned short>::load(from)})[0]; }
  AIACC_INLINE static Wide widen(const Stored& value) { return Fp32::widen(parts_of(widen_half(value))); }
  AIACC_INLINE static Stored narrow(const Wide& value) { return narrow_half(whole_of(Fp32::narrow(value))); }
};
struct Bf16 {
  using Stored = Half;
  static constexpr size_t kBytes = 2;
  AIACC_INLINE static double one(const byte* from) {
    return __builtin_bit_cast(float, (unsigned)Memory<unsigned short>::load(from) << 16);
  }
  AIACC_INLINE static Wide widen(const Stored& value) {
    return Fp32::widen(parts_of((EightSingles)(words_of(value) << 16)));
  }
  AIACC_INLINE static Stored narrow(const Wide& value) {
    const EightSingles single = whole_of(Fp32::narrow(value));
    const Word bits = (Word)single;
    const Word rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const Word quiet = (bits >> 16) | 0x40;
    return halves_of((single != single) ? quiet : rounded);
  }
};

// Copies `n` elements, fewer than kLanes: by moves of fixed lengths, where a copy of a variable length is a call.
template <size_t Bytes>
AIACC_INLINE inline void copy_some(byte* to, const byte* from, size_t n) {
  if ((n & 4) != 0) {
    __builtin_memcpy(to, from, 4 * Bytes);
    to += 4 * Bytes;
    from += 4 * Bytes;
  }
  if ((n & 2) != 0) {
    __builtin_memcpy(to, from, 2 * Bytes);
    to += 2 * Bytes;
    from += 2 * Bytes;
  }
  if ((n & 1) != 0) __builtin_memcpy(to, from, Bytes);
}

// Up to kLanes elements that follow each other.
struct Piece {
  size_t at;  // where they begin, in bytes
  size_t n;
  bool readable;  // kLanes elements can be read there
};

// `n` elements, at most kLanes, and zeros after them.
template <class E>
AIACC_INLINE inline Wide load(const byte* from, size_t n) {
  using Stored = typename E::Stored;
  if (n == kLanes) return E::widen(Memory<Stored>::load(from));
  byte padded[kLanes * E::kBytes] = {};
  copy_some<E::kBytes>(padded, from, n);
  return E::widen(Memory<Stored>::load(padded));
}
template <class E>
AIACC_INLINE inline void store(byte* to, const Wide& value, size_t n) {
  using Stored = typename E::Stored;
  const Stored stored = E::narrow(value);
  if (n == kLanes) return Memory<Stored>::store(to, stored);
  byte padded[kLanes * E::kBytes];
  Memory<Stored>::store(padded, stored);
  copy_some<E::kBytes>(to, padded, n);
}
// With anything after them. It reads what follows rather than wait for a copy.
template <class E>
AIACC_INLINE inline Wide load(const byte* array, const Piece& piece) {
  return load<E>(array + piece.at, piece.readable ? kLanes : piece.n);
}
template <class E>
AIACC_INLINE inline void store(byte* array, const Piece& piece, const Wide& value) {
  store<E>(array + piece.at, value, piece.n);
}
AIACC_INLINE inline Wide numbers(const double* from, size_t n) { return load<Fp64>((const byte*)from, n); }
AIACC_INLINE inline void keep(double* to, const Wide& value, size_t n) { store<Fp64>((byte*)to, value, n); }

// `value` in the first `n` lanes, and zeros after them.
AIACC_INLINE inline Wide first_lanes(const Wide& value, size_t n) {
  static constexpr long kFirst[2 * kLanes] = {-1, -1, -1, -1, -1, -1, -1, -1};
  return masked(value, Memory<Mask>::load((const byte*)(kFirst + kLanes - n)));
}

// Whether a row of memory holds many channels, or many positions of one.
inline bool by_channel_rows(const Batch& batch) {
  return batch.layout == Layout::kChannelsLast || batch.positions == 1;
}

constexpr auto kEveryChannel = [](size_t) { return true; };

// Calls each(piece) for the pieces of one sample and channel. Before and after them: begin(channel), end(channel). Only for channels
// that are wanted(channel).
template <class E, class Wanted, class Begin, class Each, class End>
AIACC_INLINE inline void walk_positions(const Batch& batch, Wanted wanted, Begin begin, Each each, End end) {
  constexpr size_t kPieceBytes = kLanes * E::kBytes;
  const size_t bytes = batch.elements() * E::kBytes;
  size_t at = 0;
  for (size_t sample = 0; sample < batch.samples; ++sample) {
    for (size_t channel = 0; channel < batch.channels; ++channel) {
      if (!wanted(channel)) {
        at += batch.positions * E::kBytes;
        continue;
      }
      begin(channel);
      size_t left = batch.positions;
      for (; left >= kLanes; left -= kLanes, at += kPieceBytes) each({at, kLanes, true});
      if (left > 0) each({at, left, at + kPieceBytes <= bytes});
      at += left * E::kBytes;
      end(channel);
    }
  }
}

// As above with the channels of one row: begin(first channel, channels), each(piece) for each of some rows, end(first channel,
// channels). As many rows are taken together as fit into a cache, and of long ones as many as its ways have room for: rows whose
// length is a power of two collide in it. Only those whose first channel is wanted(channel).
template <class E, class Wanted, class Begin, class Each, class End>
AIACC_INLINE inline void walk_channels(const Batch& batch, size_t arrays, Wanted wanted, Begin begin, Each each,
                                       End end) {
  constexpr size_t kMostRows = 32, kBlockBytes = 8 << 10, kWays = 8;
  const size_t rows = batch.samples * batch.positions;
  const size_t row_bytes = batch.channels * E::kBytes, bytes = rows * row_bytes;
  const size_t fit = kBlockBytes / row_bytes;
  const size_t least = kWays / arrays;
  const size_t together = fit < least ? least : fit < kMostRows ? fit : kMostRows;
  for (size_t row = 0; row < rows; row += together) {
    const size_t last = rows - row < together ? rows : row + together;
    for (size_t channel = 0; channel < batch.channels; channel += kLanes) {
      if (!wanted(channel)) continue;
      const size_t left = batch.channels - channel;
      const size_t n = left < kLanes ? left : kLanes;
      size_t at = row * row_bytes + channel * E::kBytes;
      begin(channel, n);
      if (n == kLanes) {
        for (size_t each_row = row; each_row < last; ++each_row, at += row_bytes) each({at, kLanes, true});
      } else {
        for (size_t each_row = row; each_row < last; ++each_row, at += row_bytes)
          each({at, n, at + kLanes * E::kBytes <= bytes});
      }
      end(channel, n);
    }
  }
}

inline void clear(double* array, size_t n) { __builtin_memset(array, 0, n * sizeof(double)); }

// Sums of elements, or, if kShifted, of deviations from `shift` in the groups of channels that are taken: `taken` has one number
// for each kLanes channels.
template <class E, bool kShifted>
AIACC_INLINE inline void sums_of(const Batch& batch, const void* elements, const std::uint8_t* taken,
                                 const double* shift, double* first, double* second) {
  const auto* const x = (const byte*)elements;
  Wide own_shift, own_first, own_second;
  const auto each = [&](const Piece& piece) AIACC_INLINE {
    Wide value = load<E>(x, piece);
    if constexpr (kShifted) value = value - own_shift;
    if (piece.n < kLanes) value = first_lanes(value, piece.n);
    own_first = own_first + value;
    own_second = own_second + value * value;
  };
  const auto wanted = [&](size_t channel) AIACC_INLINE { return !kShifted || taken[channel / kLanes] != 0; };
  for (size_t channel = 0; channel < batch.channels; channel += kLanes) {
    if (!wanted(channel)) continue;
    const size_t left = batch.channels - channel;
    clear(first + channel, left < kLanes ? left : kLanes);
    clear(second + channel, left < kLanes ? left : kLanes);
  }
  if (by_channel_rows(batch)) {
    walk_channels<E>(
        batch, 1, wanted,
        [&](size_t channel, size_t n) AIACC_INLINE {
          if constexpr (kShifted) own_shift = numbers(shift + channel, n);
          own_first = numbers(first + channel, n);
          own_second = numbers(second + channel, n);
        },
        each,
        [&](size_t channel, size_t n) AIACC_INLINE {
          keep(first + channel, own_first, n);
          keep(second + channel, own_second, n);
        });
    return;
  }
  walk_positions<E>(
      batch, wanted,
      [&](size_t channel) AIACC_INLINE {
        if constexpr (kShifted) own_shift = Numbers<Wide>::all(shift[channel]);
        own_first = own_second = Wide{};
      },
      each,
      [&](size_t channel) AIACC_INLINE {
        first[channel] += sum_of(own_first);
        second[channel] += sum_of(own_second);
      });
}
template <class E>
void sums(const Batch& batch, const void* elements, double* first, double* second) {
  sums_of<E, false>(batch, elements, nullptr, nullptr, first, second);
}
template <class E>
void sums_from(const Batch& batch, const void* elements, const std::uint8_t* taken, const double* shift, double* first,
               double* second) {
  sums_of<E, true>(batch, elements, taken, shift, first, second);
}
template <class E>
void sums_from_first(const Batch& batch, const void* elements, const std::uint8_t* taken, double* shift, double* first,
                     double* second) {
  const size_t apart = (batch.layout == Layout::kChannelsLast ? 1 : batch.positions) * E::kBytes;
  for (size_t channel = 0; channel < batch.channels; ++channel) {
    if (taken[channel / kLanes] != 0) shift[channel] = E::one((const byte*)elements + channel * apart);
  }
  sums_from<E>(batch, elements, taken, shift, first, second);
}

template <class E>
void normalize(const Batch& batch, const void* elements, void* result, const double* mean, const double* scale,
               const double* bias) {
  const auto* const x = (const byte*)elements;
  auto* const y = (byte*)result;
  Wide own_mean, own_scale, own_bias;
  const auto each = [&](const Piece& piece)
                        AIACC_INLINE { store<E>(y, piece, (load<E>(x, piece) - own_mean) * own_scale + own_bias); };
  if (by_channel_rows(batch)) {
    const auto begin = [&](size_t channel, size_t n) AIACC_INLINE {
      own_mean = numbers(mean + channel, n);
      own_scale = numbers(scale + channel, n);
      own_bias = numbers(bias + channel, n);
    };
    walk_channels<E>(batch, 2, kEveryChannel, begin, each, [](size_t, size_t) {});
    return;
  }
  const auto begin = [&](size_t channel) AIACC_INLINE {
    own_mean = Numbers<Wide>::all(mean[channel]);
    own_scale = Numbers<Wide>::all(scale[channel]);
    own_bias = Numbers<Wide>::all(bias[channel]);
  };
  walk_positions<E>(batch, kEveryChannel, begin, each, [](size_t) {});
}

template <class E>
void gradient_sums(const Batch& batch, const void* elements, const void* gradients, const double* mean, double* first,
                   double* second) {
  clear(first, batch.channels);
  clear(second, batch.channels);
  const auto* const x = (const byte*)elements;
  const auto* const dy = (const byte*)gradients;
  Wide own_mean, own_first, own_second;
  const auto each = [&](const Piece& piece) AIACC_INLINE {
    Wide gradient = load<E>(dy, piece), deviation = load<E>(x, piece) - own_mean;
    if (piece.n < kLanes) {
      gradient = first_lanes(gradient, piece.n);
      deviation = first_lanes(deviation, piece.n);
    }
    own_first = own_first + gradient;
    own_second = own_second + gradient * deviation;
  };
  if (by_channel_rows(batch)) {
    walk_channels<E>(
        batch, 2, kEveryChannel,
        [&](size_t channel, size_t n) AIACC_INLINE {
          own_mean = numbers(mean + channel, n);
          own_first = numbers(first + channel, n);
          own_second = numbers(second + channel, n);
        },
        each,
        [&](size_t channel, size_t n) AIACC_INLINE {
          keep(first + channel, own_first, n);
          keep(second + channel, own_second, n);
        });
    return;
  }
  walk_positions<E>(
      batch, kEveryChannel,
      [&](size_t channel) AIACC_INLINE {
        own_mean = Numbers<Wide>::all(mean[channel]);
        own_first = own_second = Wide{};
      },
      each,
      [&](size_t channel) AIACC_INLINE {
        first[channel] += sum_of(own_first);
        second[channel] += sum_of(own_second);
      });
}

template <class E>
void input_gradient(const Batch& batch, const void* elements, const void* gradients, void* result, const double* mean,
                    const double* of_gradient, const double* of_deviation, const double* constant) {
  const auto* const x = (const byte*)elements;
  const auto* const dy = (const byte*)gradients;
  auto* const dx = (byte*)result;
  Wide own_mean, own_gradient, own_deviation, own_constant;
  const auto each = [&](const Piece& piece) AIACC_INLINE {
    const Wide deviation = load<E>(x, piece) - own_mean;
    store<E>(dx, piece, load<E>(dy, piece) * own_gradient + deviation * own_deviation + own_constant);
  };
  if (by_channel_rows(batch)) {
    const auto begin = [&](size_t channel, size_t n) AIACC_INLINE {
      own_mean = numbers(mean + channel, n);
      own_gradient = numbers(of_gradient + channel, n);
      own_deviation = numbers(of_deviation + channel, n);
      own_constant = numbers(constant + channel, n);
    };
    walk_channels<E>(batch, 3, kEveryChannel, begin, each, [](size_t, size_t) {});
    return;
  }
  const auto begin = [&](size_t channel) AIACC_INLINE {
    own_mean = Numbers<Wide>::all(mean[channel]);
    own_gradient = Numbers<Wide>::all(of_gradient[channel]);
    own_deviation = Numbers<Wide>::all(of_deviation[channel]);
    own_constant = Numbers<Wide>::all(constant[channel]);
  };
  walk_positions<E>(batch, kEveryChannel, begin, each, [](size_t) {});
}
