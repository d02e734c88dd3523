// The table of functions (kernels.h) of one instruction set: included last by a kernel unit, inside its namespace, behind kernels_body.h,
// whose passes over a batch it names for each element type, kernels_records.h, whose record forms it has, and kernels_channels.h.

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
    [](const Batch& batch, const void* x, double* first, double* second) { AIACC_FOR_TYPE(sums, x, first, second) },
    [](const Batch& batch, const void* x, const std::uint8_t* taken, const double* shift, double* first,
       double* second) { AIACC_FOR_TYPE(sums_from, x, taken, shift, first, second) },
    [](const Batch& batch, const void* x, const std::uint8_t* taken, double* shift, double* first, double* second) {
      AIACC_FOR_TYPE(sums_from_first, x, taken, shift, first, second)
    },
    any_far,
    [](const Batch& batch, const void* x, void* y, const double* mean, const double* scale, const double* bias) {
      AIACC_FOR_TYPE(normalize, x, y, mean, scale, bias)
    },
    [](const Batch& batch, const void* x, const void* dy, const double* mean, double* first, double* second) {
      AIACC_FOR_TYPE(gradient_sums, x, dy, mean, first, second)
    },
    [](const Batch& batch, const void* x, const void* dy, void* dx, const double* mean, const double* of_gradient,
       const double* of_deviation,
       const double* constant) { AIACC_FOR_TYPE(input_gradient, x, dy, dx, mean, of_gradient, of_deviation, constant) },
    [](const Scaling& of) { of.type == DType::kFloat64 ? scales<Fp64>(of) : scales<Fp32>(of); },
    [](const GradientSums& of) {
      if (of.type == DType::kFloat64) return give_gradients<Fp64, Fp64>(of);
      of.sum_type == DType::kFloat64 ? give_gradients<Fp32, Fp64>(of) : give_gradients<Fp32, Fp32>(of);
    },
    [](const GradientScaling& of) {
      if (of.type == DType::kFloat64) return gradient_scales<Fp64, Fp64>(of);
      of.sum_type == DType::kFloat64 ? gradient_scales<Fp32, Fp64>(of) : gradient_scales<Fp32, Fp32>(of);
    },
    kRecordForm<WideNumbers>,
    kRecordForm<NarrowNumbers>};
#undef AIACC_FOR_TYPE
#undef AIACC_INLINE
#undef AIACC_REGISTER_BYTES
