// The passes over a batch, compiled once for every instruction set, as base/data/kernels_body.h is: a unit opens its own
// namespace, and includes this file inside of it after base/data/kernels_half.h. Everything here belongs to that
// namespace.
//
// Elements are processed eight at a time in fp64, whatever their type: fp64 costs less time than reading the memory. The
// last ones of a row are padded.

using std::byte;
using std::size_t;
constexpr size_t kLanes = 8;
typedef double Wide __attribute__((vector_size(kLanes * sizeof(double))));
typedef float Single __attribute__((vector_size(kLanes * sizeof(float))));
typedef unsigned short Half __attribute__((vector_size(kLanes * sizeof(unsigned short))));
typedef unsigned int Word __attribute__((vector_size(kLanes * sizeof(unsigned int))));

struct Fp64 {
  using Stored = Wide;
  static constexpr size_t kBytes = 8;
  static Wide widen(const Stored& value) { return value; }
  static Stored narrow(const Wide& value) { return value; }
};
struct Fp32 {
  using Stored = Single;
  static constexpr size_t kBytes = 4;
  static Wide widen(const Stored& value) { return __builtin_convertvector(value, Wide); }
  static Stored narrow(const Wide& value) { return __builtin_convertvector(value, Single); }
};
struct Fp16 {
  using Stored = Half;
  static constexpr size_t kBytes = 2;
  static Wide widen(const Stored& value) { return __builtin_convertvector(widen_half(value), Wide); }
  static Stored narrow(const Wide& value) { return narrow_half(__builtin_convertvector(value, Single)); }
};
struct Bf16 {
  using Stored = Half;
  static constexpr size_t kBytes = 2;
  static Wide widen(const Stored& value) {
    return __builtin_convertvector((Single)(__builtin_convertvector(value, Word) << 16), Wide);
  }
  static Stored narrow(const Wide& value) {
    const Single single = __builtin_convertvector(value, Single);
    const Word bits = (Word)single;
    const Word rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const Word quiet = (bits >> 16) | 0x40;
    return __builtin_convertvector((single != single) ? quiet : rounded, Half);
  }
};

// `n` elements, at most kLanes, and zeros after them.
template <class E>
inline Wide load(const byte* from, size_t n) {
  typename E::Stored stored;
  if (n == kLanes) {
    __builtin_memcpy(&stored, from, kLanes * E::kBytes);
  } else {
    stored = typename E::Stored{};
    __builtin_memcpy(&stored, from, n * E::kBytes);
  }
  return E::widen(stored);
}
template <class E>
inline void store(byte* to, const Wide& value, size_t n) {
  const typename E::Stored stored = E::narrow(value);
  if (n == kLanes) {
    __builtin_memcpy(to, &stored, kLanes * E::kBytes);
  } else {
    __builtin_memcpy(to, &stored, n * E::kBytes);
  }
}
inline Wide numbers(const double* from, size_t n) { return load<Fp64>((const byte*)from, n); }
inline void keep(double* to, const Wide& value, size_t n) { store<Fp64>((byte*)to, value, n); }

// `value` in the first `n` lanes, and zeros after them.
inline Wide first_lanes(const Wide& value, size_t n) {
  Wide kept{};
  for (size_t lane = 0; lane < n; ++lane) kept[lane] = value[lane];
  return kept;
}
inline double sum_of(const Wide& value) {
  return ((value[0] + value[4]) + (value[2] + value[6])) + ((value[1] + value[5]) + (value[3] + value[7]));
}

// Whether a row of memory holds many channels, or many positions of one.
inline bool by_channel_rows(const Batch& batch) {
  return batch.layout == Layout::kChannelsLast || batch.positions == 1;
}

// Calls each(channel, offset in bytes, elements) for up to kLanes elements of one channel. Before and after those of one
// sample and channel: begin(channel), end(channel).
template <class E, class Begin, class Each, class End>
inline void walk_positions(const Batch& batch, Begin begin, Each each, End end) {
  size_t at = 0;
  for (size_t sample = 0; sample < batch.samples; ++sample) {
    for (size_t channel = 0; channel < batch.channels; ++channel) {
      begin(channel);
      size_t left = batch.positions;
      for (; left >= kLanes; left -= kLanes, at += kLanes * E::kBytes) each(at, kLanes);
      if (left > 0) each(at, left);
      at += left * E::kBytes;
      end(channel);
    }
  }
}

// As above with up to kLanes channels, which follow each other, of one row: begin(first channel, channels), each(offset,
// channels) for each of some rows, end(first channel, channels). Rows are taken together as long as they fit into a cache.
template <class E, class Begin, class Each, class End>
inline void walk_channels(const Batch& batch, Begin begin, Each each, End end) {
  constexpr size_t kRows = 32;
  const size_t rows = batch.samples * batch.positions;
  const size_t row_bytes = batch.channels * E::kBytes;
  for (size_t row = 0; row < rows; row += kRows) {
    const size_t last = rows - row < kRows ? rows : row + kRows;
    for (size_t channel = 0; channel < batch.channels; channel += kLanes) {
      const size_t left = batch.channels - channel;
      const size_t n = left < kLanes ? left : kLanes;
      begin(channel, n);
      for (size_t at = row; at < last; ++at) each(at * row_bytes + channel * E::kBytes, n);
      end(channel, n);
    }
  }
}

inline void clear(double* array, size_t n) { __builtin_memset(array, 0, n * sizeof(double)); }

template <class E>
void first_elements(const Batch& batch, const void* elements, double* first) {
  if (batch.samples == 0 || batch.positions == 0) return;
  const auto* const x = (const byte*)elements;
  const size_t apart = by_channel_rows(batch) ? 1 : batch.positions;
  for (size_t channel = 0; channel < batch.channels; ++channel)
    first[channel] = load<E>(x + channel * apart * E::kBytes, 1)[0];
}

template <class E>
void sums(const Batch& batch, const void* elements, const double* shift, double* first, double* second) {
  clear(first, batch.channels);
  clear(second, batch.channels);
  const auto* const x = (const byte*)elements;
  Wide own_shift, own_first, own_second;
  const auto each = [&](size_t at, size_t n) {
    Wide deviation = load<E>(x + at, n) - own_shift;
    if (n < kLanes) deviation = first_lanes(deviation, n);
    own_first += deviation;
    own_second += deviation * deviation;
  };
  if (by_channel_rows(batch)) {
    walk_channels<E>(
        batch,
        [&](size_t channel, size_t n) {
          own_shift = numbers(shift + channel, n);
          own_first = numbers(first + channel, n);
          own_second = numbers(second + channel, n);
        },
        each,
        [&](size_t channel, size_t n) {
          keep(first + channel, own_first, n);
          keep(second + channel, own_second, n);
        });
    return;
  }
  walk_positions<E>(
      batch,
      [&](size_t channel) {
        own_shift = Wide{} + shift[channel];
        own_first = own_second = Wide{};
      },
      each,
      [&](size_t channel) {
        first[channel] += sum_of(own_first);
        second[channel] += sum_of(own_second);
      });
}

template <class E>
void normalize(const Batch& batch, const void* elements, void* result, const double* mean, const double* scale,
               const double* bias) {
  const auto* const x = (const byte*)elements;
  auto* const y = (byte*)result;
  Wide own_mean, own_scale, own_bias;
  const auto each = [&](size_t at, size_t n) {
    store<E>(y + at, (load<E>(x + at, n) - own_mean) * own_scale + own_bias, n);
  };
  if (by_channel_rows(batch)) {
    const auto begin = [&](size_t channel, size_t n) {
      own_mean = numbers(mean + channel, n);
      own_scale = numbers(scale + channel, n);
      own_bias = numbers(bias + channel, n);
    };
    walk_channels<E>(batch, begin, each, [](size_t, size_t) {});
    return;
  }
  const auto begin = [&](size_t channel) {
    own_mean = Wide{} + mean[channel];
    own_scale = Wide{} + scale[channel];
    own_bias = Wide{} + bias[channel];
  };
  walk_positions<E>(batch, begin, each, [](size_t) {});
}

template <class E>
void gradient_sums(const Batch& batch, const void* elements, const void* gradients, const double* mean, double* first,
                   double* second) {
  clear(first, batch.channels);
  clear(second, batch.channels);
  const auto* const x = (const byte*)elements;
  const auto* const dy = (const byte*)gradients;
  Wide own_mean, own_first, own_second;
  // The lanes after the last element have a gradient of 0.
  const auto each = [&](size_t at, size_t n) {
    const Wide gradient = load<E>(dy + at, n);
    Wide deviation = load<E>(x + at, n) - own_mean;
    if (n < kLanes) deviation = first_lanes(deviation, n);
    own_first += gradient;
    own_second += gradient * deviation;
  };
  if (by_channel_rows(batch)) {
    walk_channels<E>(
        batch,
        [&](size_t channel, size_t n) {
          own_mean = numbers(mean + channel, n);
          own_first = numbers(first + channel, n);
          own_second = numbers(second + channel, n);
        },
        each,
        [&](size_t channel, size_t n) {
          keep(first + channel, own_first, n);
          keep(second + channel, own_second, n);
        });
    return;
  }
  walk_positions<E>(
      batch,
      [&](size_t channel) {
        own_mean = Wide{} + mean[channel];
        own_first = own_second = Wide{};
      },
      each,
      [&](size_t channel) {
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
  const auto each = [&](size_t at, size_t n) {
    const Wide deviation = load<E>(x + at, n) - own_mean;
    store<E>(dx + at, load<E>(dy + at, n) * own_gradient + deviation * own_deviation + own_constant, n);
  };
  if (by_channel_rows(batch)) {
    const auto begin = [&](size_t channel, size_t n) {
      own_mean = numbers(mean + channel, n);
      own_gradient = numbers(of_gradient + channel, n);
      own_deviation = numbers(of_deviation + channel, n);
      own_constant = numbers(constant + channel, n);
    };
    walk_channels<E>(batch, begin, each, [](size_t, size_t) {});
    return;
  }
  const auto begin = [&](size_t channel) {
    own_mean = Wide{} + mean[channel];
    own_gradient = Wide{} + of_gradient[channel];
    own_deviation = Wide{} + of_deviation[channel];
    own_constant = Wide{} + constant[channel];
  };
  walk_positions<E>(batch, begin, each, [](size_t) {});
}

// One function of the table, for the four element types.
#define AIACC_FOR_TYPE(function, ...)                                 \
  switch (batch.type) {                                               \
    case DType::kFloat64: return function<Fp64>(batch, __VA_ARGS__);  \
    case DType::kFloat16: return function<Fp16>(batch, __VA_ARGS__);  \
    case DType::kBFloat16: return function<Bf16>(batch, __VA_ARGS__); \
    default: return function<Fp32>(batch, __VA_ARGS__);               \
  }
constexpr Table kTable = {
    kName,
    [](const Batch& batch, const void* x, double* first) { AIACC_FOR_TYPE(first_elements, x, first) },
    [](const Batch& batch, const void* x, const double* shift, double* first, double* second) {
      AIACC_FOR_TYPE(sums, x, shift, first, second)
    },
    [](const Batch& batch, const void* x, void* y, const double* mean, const double* scale, const double* bias) {
      AIACC_FOR_TYPE(normalize, x, y, mean, scale, bias)
    },
    [](const Batch& batch, const void* x, const void* dy, const double* mean, double* first, double* second) {
      AIACC_FOR_TYPE(gradient_sums, x, dy, mean, first, second)
    },
    [](const Batch& batch, const void* x, const void* dy, void* dx, const double* mean, const double* of_gradient,
       const double* of_deviation, const double* constant) {
      AIACC_FOR_TYPE(input_gradient, x, dy, dx, mean, of_gradient, of_deviation, constant)
    }};
#undef AIACC_FOR_TYPE
