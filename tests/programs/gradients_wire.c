/* A rank for process tests of the gradient engine's 16-bit wire and its check for gradients that are not finite:
 * gradients_wire MODE. Says on standard error what failed and exits with the status's number plus 100. */
#include <aiacc/gradient.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 40000, TENSORS = 3 };
static const size_t counts[TENSORS] = {COUNT, 1, 777};
static int rank = -1, size = -1;
static uint32_t numbers[TENSORS];
static aiacc_gradient_t engine;

static void check(aiacc_status_t status, const char* what) {
  if (status == AIACC_OK) return;
  fprintf(stderr, "rank %d: %s: %s (about rank %d): %s\n", rank, what, aiacc_status_name(status),
          aiacc_last_error_rank(), aiacc_last_error());
  exit(100 + (int)status);
}

static void require(int condition, const char* what) {
  if (condition) return;
  fprintf(stderr, "rank %d: not true: %s (%s)\n", rank, what, aiacc_last_error());
  exit(99);
}

static aiacc_tensor_t tensor_of(int t, aiacc_op_t op, aiacc_wire_t wire) {
  static char names[TENSORS][32];
  aiacc_tensor_t tensor = {0};
  snprintf(names[t], sizeof names[t], "layer %d", t);
  tensor.size = sizeof tensor;
  tensor.name = names[t];
  tensor.count = counts[t];
  tensor.dtype = AIACC_FLOAT32;
  tensor.op = op;
  tensor.wire = wire;
  return tensor;
}

static void make(aiacc_op_t op, aiacc_wire_t wire, int nan_check) {
  aiacc_gradient_attr_t attr = {0};
  attr.size = sizeof attr;
  attr.name = "wire";
  attr.fusion_bytes = 30000;
  attr.schedule_steps = 3;
  attr.nan_check = nan_check;
  check(aiacc_gradient_create(AIACC_WORLD, &attr, &engine), "create");
  for (int t = 0; t < TENSORS; ++t) {
    aiacc_tensor_t tensor = tensor_of(t, op, wire);
    check(aiacc_gradient_add(engine, 1, &tensor, &numbers[t]), "add");
  }
}

static float* memory_of(int t) {
  void* memory = NULL;
  check(aiacc_gradient_memory(engine, numbers[t], &memory), "memory");
  return memory;
}

/* Between -1 and 1, another one for each rank, step, tensor and element. */
static double value_of(int of, int step, int t, size_t i) {
  uint64_t x = (uint64_t)of * 0x9e3779b97f4a7c15u + (uint64_t)step * 0xbf58476d1ce4e5b9u +
               (uint64_t)t * 0x94d049bb133111ebu + i + 1;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return (double)(x >> 11) / (double)(1ull << 52) - 1;
}

static void submit_step(int step, double scale) {
  for (int t = 0; t < TENSORS; ++t) {
    float* memory = memory_of(t);
    for (size_t i = 0; i < counts[t]; ++i) memory[i] = (float)(scale * value_of(rank, step, t, i));
    check(aiacc_gradient_submit(engine, numbers[t], NULL, NULL, NULL), "submit");
  }
}

/* The relative error of the result of tensor t, and that all ranks have the same bits. */
static double error_of(int step, int t, double scale) {
  const float* memory = memory_of(t);
  double wrong = 0, right = 0;
  uint64_t hash = 0, hashes[2];
  for (size_t i = 0; i < counts[t]; ++i) {
    double sum = 0;
    for (int of = 0; of < size; ++of) sum += (float)(scale * value_of(of, step, t, i));
    wrong += (memory[i] - sum) * (memory[i] - sum);
    right += sum * sum;
    uint32_t bits;
    memcpy(&bits, &memory[i], sizeof bits);
    hash = hash * 0x100000001b3u + bits;
  }
  hash >>= 1;
  check(aiacc_allreduce(&hash, &hashes[0], 1, AIACC_UINT64, AIACC_MIN, AIACC_WORLD, NULL, NULL), "allreduce");
  check(aiacc_allreduce(&hash, &hashes[1], 1, AIACC_UINT64, AIACC_MAX, AIACC_WORLD, NULL, NULL), "allreduce");
  require(hashes[0] == hashes[1], "all ranks have equal bits");
  return sqrt(wrong / right);
}

static aiacc_gradient_stats_t stats_of(void) {
  aiacc_gradient_stats_t stats = {0};
  stats.size = sizeof stats;
  check(aiacc_gradient_get_stats(engine, &stats), "stats");
  return stats;
}

/* Gradients far below what fp16 can hold, then far above it from one step to the next, and back. Between hosts nothing overflows, so
 * nothing is reduced again. */
static void precision(aiacc_wire_t wire, double most) {
  int here = 0;
  check(aiacc_local_size(AIACC_WORLD, &here), "local size");
  make(AIACC_SUM, wire, -1);
  double greatest = 0;
  for (int step = 0; step < 30; ++step) {
    const double scale = step < 10 ? 1e-12 : step < 20 ? 1e9 : 1e-3;
    submit_step(step, scale);
    check(aiacc_gradient_wait(engine), "wait");
    for (int t = 0; t < TENSORS; t += 2) {
      const double error = error_of(step, t, scale);
      if (error > most) fprintf(stderr, "rank %d: step %d, tensor %d: error %g\n", rank, step, t, error);
      require(error <= most, "the error is that of one rounding");
      greatest = error > greatest ? error : greatest;
    }
  }
  const aiacc_gradient_stats_t stats = stats_of();
  require(stats.tensors == 30 * TENSORS, "all tensors count");
  const double part = (double)stats.wire_bytes / (double)stats.bytes;
  if (size > 1) require(part >= 0.5 && part < 0.7, "about half of the bytes travel");
  if (here < size) require(part < 0.501, "from the first step on, and once");
  if (rank == 0) printf("%g\n", greatest);
  check(aiacc_gradient_free(engine), "free");
}

/* 16 bits between hosts only: on one host the bits of fp32, and between hosts two roundings, from the first step on and at any
 * magnitude. */
static void mixed(void) {
  int here = 0;
  check(aiacc_local_size(AIACC_WORLD, &here), "local size");
  make(AIACC_SUM, AIACC_WIRE_MIXED, -1);
  double greatest = 0;
  for (int step = 0; step < 12; ++step) {
    const double scale = step < 4 ? 1e-20 : step < 8 ? 1e30 : 1e-3;
    submit_step(step, scale);
    check(aiacc_gradient_wait(engine), "wait");
    const double error = error_of(step, 0, scale);
    require(error <= (here == size ? 1e-6 : 6e-4), "the error is that of two roundings, or none");
    require(error_of(step, 2, scale) <= 1e-6, "short tensors travel as they are");
    greatest = error > greatest ? error : greatest;
  }
  const aiacc_gradient_stats_t stats = stats_of();
  const double part = (double)stats.wire_bytes / (double)stats.bytes;
  require(here == size ? stats.wire_bytes == stats.bytes : part >= 0.5 && part < 0.55, "half of the bytes travel");
  require(stats.tensors == 12 * TENSORS, "all tensors count");
  if (rank == 0) printf("%g\n", greatest);
  check(aiacc_gradient_free(engine), "free");
}

/* All as they are: the bits of fp32. */
static void exact(void) {
  make(AIACC_SUM, AIACC_WIRE_DEFAULT, 0);
  for (int step = 0; step < 5; ++step) {
    submit_step(step, 1);
    check(aiacc_gradient_wait(engine), "wait");
    require(error_of(step, 0, 1) < 1e-6, "the error is that of fp32");
  }
  require(stats_of().wire_bytes == stats_of().bytes, "all bytes travel");
  check(aiacc_gradient_free(engine), "free");
}

/* Of AIACC_ALLREDUCE_DTYPE: how many bytes travel for a hundred. */
static void by_setting(void) {
  make(AIACC_AVG, AIACC_WIRE_DEFAULT, 0);
  for (int step = 0; step < 20; ++step) {
    submit_step(step, 1);
    check(aiacc_gradient_wait(engine), "wait");
  }
  const aiacc_gradient_stats_t stats = stats_of();
  if (rank == 0) printf("%.0f\n", 100.0 * (double)stats.wire_bytes / (double)stats.bytes);
  check(aiacc_gradient_free(engine), "free");
}

static void mismatch(void) {
  make(AIACC_SUM, rank == size - 1 ? AIACC_WIRE_FLOAT16 : AIACC_WIRE_FLOAT32, 0);
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier");
  aiacc_status_t status = AIACC_OK;
  /* A submission that follows the exchange of descriptions says it already. */
  for (int t = 0; t < TENSORS && status == AIACC_OK; ++t)
    status = aiacc_gradient_submit(engine, numbers[t], NULL, NULL, NULL);
  if (status == AIACC_OK) status = aiacc_gradient_wait(engine);
  fprintf(stderr, "rank %d: wait: %s: %s\n", rank, aiacc_status_name(status), aiacc_last_error());
  require(status == AIACC_ERR_MISMATCH, "a mismatch is told");
  aiacc_tensor_t tensor = tensor_of(0, AIACC_MAX, AIACC_WIRE_FLOAT16);
  tensor.name = "maximum";
  check(aiacc_gradient_free(engine), "free");
  aiacc_gradient_attr_t attr = {0};
  attr.size = sizeof attr;
  attr.name = "other";
  check(aiacc_gradient_create(AIACC_WORLD, &attr, &engine), "create");
  require(aiacc_gradient_add(engine, 1, &tensor, numbers) == AIACC_ERR_INVALID_ARGUMENT, "sums have a wire");
  require(strstr(aiacc_last_error(), "'maximum'") != NULL, "by the tensor's name");
  check(aiacc_gradient_free(engine), "free");
}

/* In some steps the last rank has a gradient that is not finite. All ranks are told, in the same steps, and go on. */
static void not_finite(aiacc_wire_t wire) {
  make(AIACC_AVG, wire, 1);
  for (int step = 0; step < 24; ++step) {
    const int bad = step % 8 == 6;
    for (int t = 0; t < TENSORS; ++t) {
      float* memory = memory_of(t);
      for (size_t i = 0; i < counts[t]; ++i) memory[i] = (float)value_of(rank, step, t, i);
      if (bad && rank == size - 1 && t == 2) memory[700] = step == 6 ? NAN : INFINITY;
      aiacc_request_t request = AIACC_NULL;
      check(aiacc_gradient_submit(engine, numbers[t], NULL, NULL, t == 2 ? &request : NULL), "submit");
      if (t == 2) {
        const aiacc_status_t status = aiacc_wait(request);
        require(status == (bad ? AIACC_ERR_NOT_FINITE : AIACC_OK), "the request tells it");
      }
    }
    const aiacc_status_t status = aiacc_gradient_wait(engine);
    if (!bad) {
      check(status, "wait");
      continue;
    }
    require(status == AIACC_ERR_NOT_FINITE, "the step is not finite");
    char expected[100];
    snprintf(expected, sizeof expected, "gradient 'layer 2' of rank %d is not finite", size - 1);
    require(strstr(aiacc_last_error(), expected) != NULL, expected);
    require(aiacc_last_error_rank() == size - 1, "and the rank");
    for (size_t i = 0; i < counts[0]; i += 999) require(isfinite(memory_of(0)[i]), "other tensors are reduced");
  }
  check(aiacc_gradient_free(engine), "free");
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  check(aiacc_init(NULL), "init");
  check(aiacc_rank(AIACC_WORLD, &rank), "rank");
  check(aiacc_size(AIACC_WORLD, &size), "size");
  const char* mode = argv[1];
  if (strcmp(mode, "fp16") == 0) precision(AIACC_WIRE_FLOAT16, 6e-4);
  if (strcmp(mode, "bf16") == 0) precision(AIACC_WIRE_BFLOAT16, 5e-3);
  if (strcmp(mode, "mixed") == 0) mixed();
  if (strcmp(mode, "exact") == 0) exact();
  if (strcmp(mode, "setting") == 0) by_setting();
  if (strcmp(mode, "mismatch") == 0) mismatch();
  if (strcmp(mode, "nan") == 0) not_finite(AIACC_WIRE_FLOAT32);
  if (strcmp(mode, "nan-fp16") == 0) not_finite(AIACC_WIRE_FLOAT16);
  if (strcmp(mode, "nan-mixed") == 0) not_finite(AIACC_WIRE_MIXED);
  if (strcmp(mode, "nan-bf16") == 0) not_finite(AIACC_WIRE_BFLOAT16);
  check(aiacc_finalize(), "finalize");
  return 0;
}
