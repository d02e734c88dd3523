// The table of functions (kernels.h) of one instruction set: included last by a kernel unit, inside its namespace, behind kernels_body.h,
// whose passes over a batch it names for each element type, and kernels_records.h, whose record forms it has.

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
       const double* of_deviation,
       const double* constant) { AIACC_FOR_TYPE(input_gradient, x, dy, dx, mean, of_gradient, of_deviation, constant) },
    kRecordForm<WideNumbers>,
    kRecordForm<NarrowNumbers>};
#undef AIACC_FOR_TYPE
#undef AIACC_INLINE
