// The loops over the channels of records (RecordForm), compiled once for every instruction set: included behind kernels_body.h, whose
// vectors of eight numbers they use, in its namespace. No sum is fused with a product, so every table gives the same bits.

template <class Vector, class Use>
AIACC_INLINE inline auto in_parts(const Vector& value, Use use) {
  return use(value);
}
template <class Part, class Use>
AIACC_INLINE inline auto in_parts(const Two<Part>& value, Use use) {
  return Two<decltype(in_parts(value.low, use))>{in_parts(value.low, use), in_parts(value.high, use)};
}
AIACC_INLINE inline Wide numbers_of_bits(const Mask& bits) {
  return in_parts(bits, [](auto part) AIACC_INLINE {
    typedef double Part __attribute__((vector_size(sizeof part)));
    return (Part)part;
  });
}
AIACC_INLINE inline Mask bits_of_numbers(const Wide& numbers) {
  return in_parts(numbers, [](auto part) AIACC_INLINE {
    typedef long Part __attribute__((vector_size(sizeof part)));
    return (Part)part;
  });
}
// All bits of those below 0, and of those that are not finite.
AIACC_INLINE inline Mask below_0_or_not_finite(const Wide& numbers) {
  return in_parts(numbers, [](auto part) AIACC_INLINE {
    typedef long Part __attribute__((vector_size(sizeof part)));
    return ~((Part)(part >= 0) & (Part)(part <= __DBL_MAX__));
  });
}
typedef long EightLongs __attribute__((vector_size(kLanes * sizeof(long))));
AIACC_INLINE inline Mask longs_of(const Half& half) {
#if AIACC_REGISTER_BYTES == 64
  return (Mask)_mm512_maskz_cvtepu16_epi64(0xff, (__m128i)half);
#elif AIACC_REGISTER_BYTES == 32
  using Part = decltype(Mask::low);
  return {(Part)_mm256_cvtepu16_epi64((__m128i)half),
          (Part)_mm256_cvtepu16_epi64(_mm_unpackhi_epi64((__m128i)half, (__m128i)half))};
#else
  const EightLongs longs = __builtin_convertvector(half, EightLongs);
  return Memory<Mask>::load((const byte*)&longs);
#endif
}
// The lowest 16 bits of each.
AIACC_INLINE inline Half low_halves_of(const Mask& longs) {
#if AIACC_REGISTER_BYTES == 64
  return (Half)_mm512_maskz_cvtepi64_epi16(0xff, (__m512i)longs);
#elif AIACC_REGISTER_BYTES == 32
  const __m256i mask = _mm256_set1_epi64x(0xffff);
  const __m256i low = _mm256_and_si256((__m256i)longs.low, mask), high = _mm256_and_si256((__m256i)longs.high, mask);
  const __m256i words = _mm256_packus_epi32(low, high);  // 0 1 | 4 5 in the lower half, 2 3 | 6 7 in the upper one
  const __m256i halves = _mm256_packus_epi32(words, words);
  return (Half)_mm_unpacklo_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
#else
  EightLongs whole;
  Memory<Mask>::store((byte*)&whole, longs);
  return __builtin_convertvector(whole, Half);
#endif
}
AIACC_INLINE inline Half load_halves(const byte* from, size_t n) {
  if (n == kLanes) return Memory<Half>::load(from);
  byte padded[sizeof(Half)] = {};
  copy_some<2>(padded, from, n);
  return Memory<Half>::load(padded);
}
AIACC_INLINE inline void store_halves(byte* to, const Half& halves, size_t n) {
  if (n == kLanes) return Memory<Half>::store(to, halves);
  byte padded[sizeof(Half)];
  Memory<Half>::store(padded, halves);
  copy_some<2>(to, padded, n);
}

// What follows a record's count: the means and variances of `channels` channels. Not M2, which exceeds fp32 where a variance does not.
// Each function is for `n` channels from `channel` on, at most kLanes.
struct WideNumbers {
  static constexpr size_t kBytes = 16;  // of a channel
  AIACC_INLINE static Wide mean(const byte* numbers, size_t, size_t channel, size_t n) {
    return load<Fp64>(numbers + 8 * channel, n);
  }
  AIACC_INLINE static Wide variance(const byte* numbers, size_t channels, size_t channel, size_t n) {
    return load<Fp64>(numbers + 8 * (channels + channel), n);
  }
  AIACC_INLINE static void put(byte* numbers, size_t channels, size_t channel, size_t n, const Wide& mean,
                               const Wide& variance) {
    store<Fp64>(numbers + 8 * channel, mean, n);
    store<Fp64>(numbers + 8 * (channels + channel), variance, n);
  }
  // As they are read when they have been put.
  AIACC_INLINE static Wide kept_mean(const Wide& mean) { return mean; }
  AIACC_INLINE static Wide kept_variance(const Wide& variance) { return variance; }
};
struct NarrowNumbers {
  static constexpr size_t kBytes = 10;
  static constexpr int kDropped = 13;  // of kMore
  AIACC_INLINE static Wide mean(const byte* numbers, size_t channels, size_t channel, size_t n) {
    const Mask first = bits_of_numbers(load<Fp32>(numbers + 4 * channel, n));
    const Mask next = in_parts(longs_of(load_halves(numbers + 4 * channels + 2 * channel, n)),
                               [](auto part) AIACC_INLINE { return part << kDropped; });
    return numbers_of_bits(first + next);  // none has a bit where the other has one
  }
  AIACC_INLINE static Wide variance(const byte* numbers, size_t channels, size_t channel, size_t n) {
    return load<Fp32>(numbers + 6 * channels + 4 * channel, n);
  }
  AIACC_INLINE static void put(byte* numbers, size_t channels, size_t channel, size_t n, const Wide& mean,
                               const Wide& variance) {
    const Mask rounded = rounded_bits(mean), first = first_bits(rounded);
    const Mask next = in_parts(rounded, [](auto part) AIACC_INLINE { return part >> kDropped; });
    store<Fp32>(numbers + 4 * channel, numbers_of_bits(first), n);
    store_halves(numbers + 4 * channels + 2 * channel, low_halves_of(next), n);
    store<Fp32>(numbers + 6 * channels + 4 * channel, variance, n);
  }
  AIACC_INLINE static Wide kept_mean(const Wide& mean) {
    const Mask rounded = rounded_bits(mean);
    const Mask first = bits_of_numbers(kept_variance(numbers_of_bits(first_bits(rounded))));
    return numbers_of_bits(
        first + in_parts(rounded, [](auto part) AIACC_INLINE { return part & ((1L << kMore) - (1L << kDropped)); }));
  }
  AIACC_INLINE static Wide kept_variance(const Wide& variance) { return Fp32::widen(Fp32::narrow(variance)); }

 private:
  static constexpr int kMore = 29;  // bits that fp64 has more than fp32
  // A carry goes into the exponent.
  AIACC_INLINE static Mask rounded_bits(const Wide& mean) {
    return in_parts(bits_of_numbers(mean), [](auto part) AIACC_INLINE { return part + (1L << (kDropped - 1)); });
  }
  AIACC_INLINE static Mask first_bits(const Mask& rounded) {
    return in_parts(rounded, [](auto part) AIACC_INLINE { return part & ~((1L << kMore) - 1); });
  }
};

constexpr size_t kCountBytes = sizeof(std::uint64_t);
AIACC_INLINE inline std::uint64_t count_of(const byte* record) { return Memory<std::uint64_t>::load(record); }

// A number of channels that the compiler knows.
constexpr std::integral_constant<size_t, kLanes> kAllLanes;

// Calls each(channel, n) for all channels. From eight on, the last call is for the last eight, of which the call before may have some,
// too: so none are left over.
template <class Each>
AIACC_INLINE inline void by_lanes(size_t channels, Each each) {
  if (channels < kLanes) return each(0, channels);
  for (size_t channel = 0; channel + kLanes < channels; channel += kLanes) each(channel, kAllLanes);
  each(channels - kLanes, kAllLanes);
}

// Calls each(channel, n) likewise, with no channel in two calls.
template <class Each>
AIACC_INLINE inline void by_rest(size_t channels, Each each) {
  size_t channel = 0;
  for (; channel + kLanes <= channels; channel += kLanes) each(channel, kAllLanes);
  if (channel < channels) each(channel, channels - channel);
}

template <class Form>
void write_record(std::uint64_t count, const double* mean, const double* square, size_t own, size_t channels,
                  byte* record) {
  Memory<std::uint64_t>::store(record, count);
  byte* const numbers_of_record = record + kCountBytes;
  if (own < channels) __builtin_memset(numbers_of_record, 0, channels * Form::kBytes);
  const Wide share = Numbers<Wide>::all(count > 0 ? 1 / (double)count : 0);
  by_lanes(own, [&](size_t channel, auto n) AIACC_INLINE {
    Form::put(numbers_of_record, channels, channel, n, numbers(mean + channel, n),
              numbers(square + channel, n) * share);
  });
}

inline bool any_far(std::uint64_t count, const double* first, const double* second, size_t channels) {
  const Wide share = Numbers<Wide>::all(1 / (double)count), far = Numbers<Wide>::all(kFar);
  Mask found = {};
  by_lanes(channels, [&](size_t channel, auto n) AIACC_INLINE {
    const Wide sum = numbers(first + channel, n), of_mean = sum * (sum * share);
    found = found + below_0_or_not_finite((numbers(second + channel, n) - of_mean) * far - of_mean);
  });
  EightLongs lanes;
  Memory<Mask>::store((byte*)&lanes, found);
  long any = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) any |= lanes[lane];
  return any != 0;
}

template <class Form>
void write_sums(std::uint64_t count, const double* first, const double* second, size_t own, size_t channels,
                byte* record) {
  Memory<std::uint64_t>::store(record, count);
  byte* const numbers_of_record = record + kCountBytes;
  if (own < channels) __builtin_memset(numbers_of_record, 0, channels * Form::kBytes);
  const Wide share = Numbers<Wide>::all(1 / (double)count);
  by_lanes(own, [&](size_t channel, auto n) AIACC_INLINE {
    const Wide sum = numbers(first + channel, n), mean = sum * share;
    const Wide square = numbers(second + channel, n) - sum * mean;
    const Wide positive = in_parts(square, [](auto part) AIACC_INLINE { return part < 0 ? decltype(part){} : part; });
    Form::put(numbers_of_record, channels, channel, n, mean, positive * share);
  });
}

template <class Form>
void read_record(const byte* record, size_t channels, size_t own, double* mean, double* square) {
  const byte* const of_record = record + kCountBytes;
  const Wide count = Numbers<Wide>::all((double)count_of(record));
  by_lanes(own, [&](size_t channel, auto n) AIACC_INLINE {
    keep(mean + channel, Form::mean(of_record, channels, channel, n), n);
    keep(square + channel, Form::variance(of_record, channels, channel, n) * count, n);
  });
}

// The operands of a merge that are not empty in one of their records, in their order, with what each weighs: of all up to it and of those
// before it.
struct Operands {
  static constexpr size_t kMost = 64;
  const byte* record[kMost];
  double before[kMost], share[kMost];
  size_t n = 0;
  std::uint64_t count = 0;

  void add(const byte* operand, size_t at) {
    const std::uint64_t added = count_of(operand + at);
    if (added == 0) return;
    const auto total = (double)(count + added);
    before[n] = (double)count / total;
    share[n] = (double)added / total;
    count += added;
    record[n++] = operand;
  }
};
// The same of up to kMost operands, from one record to the next. All records of an operand have the same count unless a rank has sent
// what it should not: then each is merged by its own, and whoever reads the result finds that its counts
// differ, unless what ranks have altered cancels out.
struct OperandsOfRecords {
  const byte* const* operands;
  size_t n;
  std::uint64_t counts[Operands::kMost];
  Operands of;

  OperandsOfRecords(const byte* const* some, size_t some_count) : operands(some), n(some_count) { take(0); }
  const Operands& at(size_t at) {
    bool same = true;
    for (size_t i = 0; i < n; ++i) same &= count_of(operands[i] + at) == counts[i];
    if (!same) take(at);
    return of;
  }

 private:
  void take(size_t at) {
    of.n = 0;
    of.count = 0;
    for (size_t i = 0; i < n; ++i) {
      counts[i] = count_of(operands[i] + at);
      of.add(operands[i], at);
    }
  }
};
template <class Form, class Lanes>
AIACC_INLINE inline void merge_lanes(const Operands& of, size_t at, size_t channels, size_t channel, Lanes n,
                                     Wide& mean, Wide& variance) {
  mean = Form::mean(of.record[0] + at, channels, channel, n);
  variance = Form::variance(of.record[0] + at, channels, channel, n);
  for (size_t i = 1; i < of.n; ++i) {
    const Wide before = Numbers<Wide>::all(of.before[i]), share = Numbers<Wide>::all(of.share[i]);
    const Wide apart = Form::mean(of.record[i] + at, channels, channel, n) - mean;
    const Wide moved = apart * share;
    const Wide within = variance * before + Form::variance(of.record[i] + at, channels, channel, n) * share;
    variance = within + moved * before * apart;
    mean = mean + moved;
  }
}

template <class Form>
void merge_all(void* result, const byte* const* operands, size_t operand_count, size_t records, void* record_bytes) {
  const size_t bytes = (size_t)record_bytes, channels = (bytes - kCountBytes) / Form::kBytes;
  auto* const merged = (byte*)result;
  const byte* some[Operands::kMost] = {operands[0]};
  for (size_t i = 1; i <= operand_count;) {
    size_t n = 1;
    for (; i < operand_count && n < Operands::kMost; ++i) some[n++] = operands[i];
    OperandsOfRecords own(some, n);
    for (size_t record = 0; record < records; ++record) {
      const size_t at = record * bytes;
      const Operands& of = own.at(at);
      if (of.n < 2) {
        __builtin_memmove(merged + at, (of.n == 0 ? some[0] : of.record[0]) + at, bytes);
        continue;
      }
      by_rest(channels, [&](size_t channel, auto lanes) AIACC_INLINE {
        Wide mean, variance;
        merge_lanes<Form>(of, at + kCountBytes, channels, channel, lanes, mean, variance);
        Form::put(merged + at + kCountBytes, channels, channel, lanes, mean, variance);
      });
      Memory<std::uint64_t>::store(merged + at, of.count);
    }
    some[0] = merged;
    if (i == operand_count) return;
  }
}

template <class Form>
std::uint64_t merge_and_read(const byte* const* operands, size_t operand_count, size_t of_record, size_t channels,
                             double* mean, double* square) {
  const size_t bytes = kCountBytes + of_record * Form::kBytes;
  OperandsOfRecords all(operands, operand_count);
  const std::uint64_t count_of_first = all.at(0).count;
  bool same = true;
  size_t at = 0;
  for (size_t first = 0; first < channels; first += of_record, at += bytes) {
    const size_t own = channels - first < of_record ? channels - first : of_record;
    const Operands& of = all.at(at);
    same &= of.count == count_of_first;
    if (of.n == 0) {
      clear(mean + first, own);
      clear(square + first, own);
      continue;
    }
    const Wide count = Numbers<Wide>::all((double)of.count);
    by_lanes(own, [&](size_t channel, auto n) AIACC_INLINE {
      Wide own_mean, variance;
      merge_lanes<Form>(of, at + kCountBytes, of_record, channel, n, own_mean, variance);
      keep(mean + first + channel, Form::kept_mean(own_mean), n);
      keep(square + first + channel, Form::kept_variance(variance) * count, n);
    });
  }
  return same ? count_of_first : kCountsDiffer;
}

template <class Form>
void merge_two(void* inout, const void* in, size_t records, void* record_bytes) {
  const byte* const operands[] = {(const byte*)inout, (const byte*)in};
  merge_all<Form>(inout, operands, 2, records, record_bytes);
}

template <class Form>
constexpr RecordForm kRecordForm = {Form::kBytes,    write_record<Form>, write_sums<Form>,    read_record<Form>,
                                    merge_two<Form>, merge_all<Form>,    merge_and_read<Form>};
