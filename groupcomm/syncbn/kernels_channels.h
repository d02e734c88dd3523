// The loops over the channels of a batch's sums (Scaling, GradientSums, GradientScaling), compiled once for every instruction set: included
// behind kernels_records.h, in its namespace. No sum is fused with a product, so every table gives the same bits.

AIACC_INLINE inline Wide inverse_root(const Wide& value) {
  return in_parts(value, [](auto part) AIACC_INLINE {
    using Part = decltype(part);
#if AIACC_REGISTER_BYTES == 64
    return 1.0 / (Part)_mm512_maskz_sqrt_pd(0xff, (__m512d)part);
#elif AIACC_REGISTER_BYTES == 32
    return 1.0 / (Part)_mm256_sqrt_pd((__m256d)part);
#else
    Part root;
    for (size_t lane = 0; lane < kPartLanes; ++lane) root[lane] = __builtin_sqrt(part[lane]);
    return 1.0 / root;
#endif
  });
}

// Of an array of E's numbers, or of as many of `otherwise` if it is null.
template <class E, class Lanes>
AIACC_INLINE inline Wide given(const void* array, size_t channel, Lanes n, double otherwise) {
  if (array == nullptr) return Numbers<Wide>::all(otherwise);
  return load<E>((const byte*)array + channel * E::kBytes, n);
}
template <class E, class Lanes>
AIACC_INLINE inline void give(void* array, size_t channel, Lanes n, const Wide& value) {
  if (array != nullptr) store<E>((byte*)array + channel * E::kBytes, value, n);
}

template <class E>
void scales(const Scaling& of) {
  const auto all = [](double number) AIACC_INLINE { return Numbers<Wide>::all(number); };
  const Wide share = all(of.share), epsilon = all(of.epsilon), kept = all(of.kept), of_mean = all(of.of_mean);
  const Wide of_square = all(of.of_square);
  by_rest(of.channels, [&](size_t channel, auto n) AIACC_INLINE {
    const Wide mean = numbers(of.mean + channel, n), square = numbers(of.square + channel, n);
    const Wide scale = inverse_root(square * share + epsilon);
    keep(of.saved_mean + channel, mean, n);
    keep(of.scale + channel, scale, n);
    keep(of.factor + channel, scale * given<E>(of.weight, channel, n, 1), n);
    keep(of.constant + channel, given<E>(of.bias, channel, n, 0), n);
    if (of.running_mean != nullptr)
      give<E>(of.running_mean, channel, n, given<E>(of.running_mean, channel, n, 0) * kept + mean * of_mean);
    if (of.running_variance != nullptr) {
      give<E>(of.running_variance, channel, n,
              given<E>(of.running_variance, channel, n, 0) * kept + square * of_square);
    }
  });
}

// Of statistics in E and sums in S.
template <class E, class S>
void give_gradients(const GradientSums& of) {
  by_rest(of.channels, [&](size_t channel, auto n) AIACC_INLINE {
    const Wide first = numbers(of.first + channel, n);
    const Wide second = numbers(of.second + channel, n) * numbers(of.scale + channel, n);
    give<S>(of.sum, channel, n, first);
    give<S>(of.product_sum, channel, n, second);
    give<E>(of.dbias, channel, n, first);
    give<E>(of.dweight, channel, n, second);
  });
}

template <class E, class S>
void gradient_scales(const GradientScaling& of) {
  const Wide share = Numbers<Wide>::all(-of.share);
  by_rest(of.channels, [&](size_t channel, auto n) AIACC_INLINE {
    const Wide scale = numbers(of.scale + channel, n), factor = scale * given<E>(of.weight, channel, n, 1);
    const Wide part = factor * share;
    const Wide first = given<S>(of.sum, channel, n, 0), second = given<S>(of.product_sum, channel, n, 0);
    keep(of.of_gradient + channel, factor, n);
    keep(of.of_deviation + channel, part * scale * second, n);
    keep(of.constant + channel, part * first, n);
  });
}
