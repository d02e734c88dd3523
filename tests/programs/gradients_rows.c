/* A rank for process tests of tables in the gradient engine: gradients_rows MODE. Says on standard error what failed and exits with the
 * status's number plus 100. */
#define _DEFAULT_SOURCE
#include <aiacc/gradient.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS = 50000, FEW = 40, WIDTH = 12, STEPS = 12 };
static int rank = -1, size = -1;
static aiacc_gradient_t engine;
static uint32_t words, few, dense;
static const int64_t* rows;
static const void* values;
static size_t count;

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

static void refused(aiacc_status_t status, aiacc_status_t expected, const char* part) {
  if (status == expected && strstr(aiacc_last_error(), part) != NULL) return;
  fprintf(stderr, "rank %d: %s, and not %s with '%s': %s\n", rank, aiacc_status_name(status),
          aiacc_status_name(expected), part, aiacc_last_error());
  exit(98);
}

static aiacc_tensor_t table_of(const char* name, size_t rows_of, size_t width) {
  aiacc_tensor_t tensor = {0};
  tensor.size = sizeof tensor;
  tensor.name = name;
  tensor.count = rows_of;
  tensor.dtype = AIACC_FLOAT32;
  tensor.op = AIACC_SUM;
  tensor.row_elements = width;
  return tensor;
}

static void make(aiacc_op_t op, int nan_check) {
  aiacc_gradient_attr_t attr = {0};
  attr.size = sizeof attr;
  attr.name = "rows";
  attr.schedule_steps = 3;
  attr.nan_check = nan_check;
  check(aiacc_gradient_create(AIACC_WORLD, &attr, &engine), "create");
  aiacc_tensor_t tensors[] = {table_of("words", WORDS, WIDTH), table_of("few", FEW, WIDTH), table_of("dense", 5000, 0)};
  uint32_t indices[3];
  tensors[0].op = tensors[1].op = op;
  check(aiacc_gradient_add(engine, 3, tensors, indices), "add");
  words = indices[0], few = indices[1], dense = indices[2];
}

/* Rank r has the rows r, r + 3, r + 6, ... r + 3 (n - 1) of the table, the first of them twice, beginning with the last. */
static void submit(uint32_t tensor, int n, float value) {
  int64_t* const numbers = malloc((size_t)(n + 1) * sizeof *numbers);
  float* const elements = malloc((size_t)(n + 1) * WIDTH * sizeof *elements);
  for (int i = 0; i <= n; ++i) {
    numbers[i] = i == n ? rank : rank + 3 * (n - 1 - i);
    for (int e = 0; e < WIDTH; ++e) elements[i * WIDTH + e] = value + (float)e;
  }
  check(aiacc_gradient_submit_rows(engine, tensor, n == 0 ? 0 : (size_t)n + 1, numbers, elements, NULL), "submit rows");
  free(numbers);
  free(elements);
}

static void submit_dense(int step) {
  void* memory = NULL;
  check(aiacc_gradient_memory(engine, dense, &memory), "memory");
  for (int i = 0; i < 5000; ++i) ((float*)memory)[i] = (float)(rank + step);
  check(aiacc_gradient_submit(engine, dense, NULL, NULL, NULL), "submit");
}

static void verify(uint32_t tensor, int n, float value, float factor) {
  check(aiacc_gradient_rows(engine, tensor, &count, &rows, &values), "rows");
  size_t at = 0;
  for (int64_t row = 0; row < size + 3 * n; ++row) {
    float sum = 0;
    int exists = 0;
    for (int of = 0; of < size; ++of) {
      if (row < of || (row - of) % 3 != 0 || (row - of) / 3 >= n) continue;
      exists = 1;
      sum += value * (row == of ? 2 : 1);
    }
    if (!exists) continue;
    require(at < count && rows[at] == row, "each row that some rank has is there once, in order");
    require(fabsf(((const float*)values)[at * WIDTH] - sum * factor) < 1e-4F * (1 + fabsf(sum)), "its sum");
    ++at;
  }
  require(at == count, "and no other row");
}

static aiacc_gradient_stats_t stats_of(void) {
  aiacc_gradient_stats_t stats = {0};
  stats.size = sizeof stats;
  check(aiacc_gradient_get_stats(engine, &stats), "stats");
  return stats;
}

static int all_are_scheduled(void) {
  int32_t scheduled = stats_of().scheduled;
  check(aiacc_allreduce(&scheduled, &scheduled, 1, AIACC_INT32, AIACC_MIN, AIACC_WORLD, NULL, NULL), "allreduce");
  return scheduled;
}

/* `few` has more rows than there is to gain by sending rows. Steps with other rows are the same to the schedule. */
static void train(aiacc_op_t op) {
  make(op, -1);
  const float factor = op == AIACC_AVG ? 1 / (float)size : 1;
  int step = 0;
  for (; step < STEPS || !all_are_scheduled(); ++step) {
    require(step < 500, "equal steps make a schedule");
    const int n = step % 4 == 3 ? 0 : 100 + 10 * (step % STEPS);
    submit(few, (FEW - size) / 3, 1);
    if (step == 8 && rank == 0) check(aiacc_gradient_flush(engine), "flush");
    submit_dense(step);
    submit(words, n, (float)(step % 16));
    check(aiacc_gradient_wait(engine), "wait");
    verify(words, n, (float)(step % 16), factor);
    verify(few, (FEW - size) / 3, 1, factor);
  }
  require(stats_of().tensors == 3 * (uint64_t)step, "all are counted");
  check(aiacc_gradient_free(engine), "free");
}

static void bad(void) {
  make(AIACC_SUM, -1);
  const int64_t outside[] = {1, WORDS}, negative[] = {-1}, fine[] = {1, 2};
  float elements[2 * WIDTH] = {0};
  refused(aiacc_gradient_submit_rows(engine, words, 2, outside, elements, NULL), AIACC_ERR_INVALID_ARGUMENT,
          "row 50000 is submitted of tensor 'words'");
  refused(aiacc_gradient_submit_rows(engine, words, 1, negative, elements, NULL), AIACC_ERR_INVALID_ARGUMENT, "row -1");
  refused(aiacc_gradient_submit_rows(engine, words, 1, NULL, elements, NULL), AIACC_ERR_INVALID_ARGUMENT,
          "rows is NULL");
  refused(aiacc_gradient_submit_rows(engine, words, 1, fine, NULL, NULL), AIACC_ERR_INVALID_ARGUMENT, "values is NULL");
  refused(aiacc_gradient_submit_rows(engine, words, SIZE_MAX, fine, elements, NULL), AIACC_ERR_INVALID_ARGUMENT,
          "count is");
  refused(aiacc_gradient_submit_rows(engine, dense, 1, fine, elements, NULL), AIACC_ERR_INVALID_ARGUMENT,
          "is no table");
  refused(aiacc_gradient_submit_rows(engine, 99, 1, fine, elements, NULL), AIACC_ERR_INVALID_ARGUMENT,
          "no tensor number 99");
  refused(aiacc_gradient_submit(engine, words, NULL, NULL, NULL), AIACC_ERR_INVALID_ARGUMENT, "is a table");
  refused(aiacc_gradient_rows(engine, dense, &count, &rows, &values), AIACC_ERR_INVALID_ARGUMENT, "is no table");
  aiacc_request_t request = AIACC_NULL;
  refused(aiacc_gradient_submit_rows(engine, words, 2, outside, elements, &request), AIACC_ERR_INVALID_ARGUMENT,
          "row 50000");
  require(request == AIACC_NULL, "no request of what was refused");
  void* memory = &memory;
  int in_place = -1;
  check(aiacc_gradient_memory(engine, words, &memory), "memory of a table");
  check(aiacc_gradient_in_place(engine, words, &in_place), "in place");
  require(memory == NULL && in_place == 0, "a table has no slot");
  check(aiacc_gradient_rows(engine, words, &count, NULL, NULL), "rows before any");
  require(count == 0, "no rows before the first submission");
  const struct {
    aiacc_dtype_t dtype;
    aiacc_op_t op;
    aiacc_wire_t wire;
    size_t count, width;
    const char* says;
  } tables[] = {{AIACC_FLOAT32, AIACC_MAX, 0, 5, 2, "rows of numbers are summed or averaged"},
                {AIACC_BOOL, AIACC_SUM, 0, 5, 2, "rows of numbers are summed or averaged"},
                {AIACC_FLOAT32, AIACC_SUM, AIACC_WIRE_FLOAT16, 5, 2, "have a 16-bit wire"},
                {AIACC_FLOAT32, AIACC_SUM, 0, SIZE_MAX / 8, 4, "more than there is memory"},
                {AIACC_FLOAT32, AIACC_SUM, 0, 1, SIZE_MAX / 4, "memory"}};
  for (size_t i = 0; i < sizeof tables / sizeof *tables; ++i) {
    aiacc_tensor_t tensor = table_of("bad", tables[i].count, tables[i].width);
    tensor.dtype = tables[i].dtype, tensor.op = tables[i].op, tensor.wire = tables[i].wire;
    uint32_t index = 0;
    refused(aiacc_gradient_add(engine, 1, &tensor, &index), AIACC_ERR_INVALID_ARGUMENT, tables[i].says);
  }
  aiacc_tensor_t other = table_of("words", WORDS, WIDTH + 1);
  uint32_t index = 0;
  refused(aiacc_gradient_add(engine, 1, &other, &index), AIACC_ERR_INVALID_ARGUMENT,
          "tensor 'words' is 50000 rows of 13 fp32, sum and was added");
  submit(words, 5, 1);
  if (size > 1) {
    refused(aiacc_gradient_submit_rows(engine, words, 2, fine, elements, NULL), AIACC_ERR_INVALID_STATE, "twice");
    refused(aiacc_gradient_rows(engine, words, &count, &rows, &values), AIACC_ERR_INVALID_STATE, "is not reduced yet");
  }
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier");
  check(aiacc_gradient_wait(engine), "wait");
  verify(words, 5, 1, 1);
  check(aiacc_gradient_free(engine), "free");
  refused(aiacc_gradient_rows(engine, words, &count, &rows, &values), AIACC_ERR_INVALID_HANDLE,
          "does not exist any more");
}

/* Rank 0 has data for longer than the others. */
static void join(void) {
  make(AIACC_SUM, -1);
  const int steps = rank == 0 ? 8 : 5;
  for (int step = 0; step < steps; ++step) {
    submit(words, 50, 1);
    submit(few, 1, 2);
    submit_dense(step);
    check(aiacc_gradient_wait(engine), "wait");
    if (step < 5) continue;
    check(aiacc_gradient_rows(engine, words, &count, &rows, &values), "rows");
    require(count == 50 && ((const float*)values)[0] == 2 && ((const float*)values)[WIDTH] == 1, "rank 0's rows alone");
  }
  int last = -1;
  check(aiacc_gradient_join(engine, &last), "join");
  check(aiacc_gradient_free(engine), "free");
}

static void not_finite(void) {
  make(AIACC_SUM, 1);
  for (int step = 0; step < 8; ++step) {
    const int bad_step = step == 2 || step == 6;
    submit(words, 20, bad_step && rank == size - 1 ? INFINITY : 1);
    submit(few, (FEW - size) / 3, 1);
    submit_dense(step);
    const aiacc_status_t status = aiacc_gradient_wait(engine);
    if (!bad_step) {
      check(status, "wait");
      verify(words, 20, 1, 1);
      continue;
    }
    refused(status, AIACC_ERR_NOT_FINITE, "gradient 'words' of rank");
    require(aiacc_last_error_rank() == size - 1, "the rank that submitted it");
    check(aiacc_gradient_rows(engine, words, &count, NULL, NULL), "rows");
    require(count == 0, "no rows after an error");
    verify(few, (FEW - size) / 3, 1, 1);
  }
  check(aiacc_gradient_free(engine), "free");
}

static void mismatch(void) {
  make(AIACC_SUM, -1);
  aiacc_tensor_t other = table_of("other", WORDS, rank == size - 1 ? 3 : 4);
  uint32_t index = 0;
  float elements[4] = {0};
  const int64_t row = 1;
  check(aiacc_gradient_add(engine, 1, &other, &index), "add");
  check(aiacc_gradient_submit_rows(engine, index, 1, &row, elements, NULL), "submit");
  refused(aiacc_gradient_wait(engine), AIACC_ERR_MISMATCH, "50000 rows of 3 fp32, sum on rank");
}

/* The last rank dies while the others have rows outstanding. */
static void lost(void) {
  make(AIACC_SUM, -1);
  for (int step = 0;; ++step) {
    if (step == 5 && rank == size - 1) _exit(7);
    submit(words, 3000, 1);
    submit(few, 4, 1);
    submit_dense(step);
    const aiacc_status_t status = aiacc_gradient_wait(engine);
    if (status == AIACC_OK) continue;
    refused(status, AIACC_ERR_PEER_FAILED, "rank");
    check(aiacc_gradient_free(engine), "free");
    return;
  }
}

enum { MANY = 4000000 };
static int64_t many[MANY];
static volatile int submits;

static void* submit_what_is_refused(void* unused) {
  submits = 1;
  refused(aiacc_gradient_submit_rows(engine, words, MANY, many, many, NULL), AIACC_ERR_INVALID_ARGUMENT, "row -1");
  return unused;
}

/* Another thread waits for a submission while that is looked at, before it is refused: nothing is outstanding then. */
static void refused_meanwhile(void) {
  make(AIACC_SUM, -1);
  many[MANY - 1] = -1;
  for (int turn = 0; rank == 0 && turn < 20; ++turn) {
    pthread_t other;
    submits = 0;
    require(pthread_create(&other, NULL, submit_what_is_refused, NULL) == 0, "a thread");
    while (!submits) sched_yield();
    usleep((unsigned)turn * 100);
    check(aiacc_gradient_wait_for(engine, words, 60000), "wait for");
    pthread_join(other, NULL);
  }
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier");
  check(aiacc_gradient_free(engine), "free");
}

int main(int argc, char** argv) {
  const char* const mode = argc > 1 ? argv[1] : "";
  check(aiacc_init(NULL), "init");
  check(aiacc_rank(AIACC_WORLD, &rank), "rank");
  check(aiacc_size(AIACC_WORLD, &size), "size");
  if (strcmp(mode, "train") == 0)
    train(AIACC_SUM);
  else if (strcmp(mode, "average") == 0)
    train(AIACC_AVG);
  else if (strcmp(mode, "bad") == 0)
    bad();
  else if (strcmp(mode, "join") == 0)
    join();
  else if (strcmp(mode, "nan") == 0)
    not_finite();
  else if (strcmp(mode, "mismatch") == 0)
    mismatch();
  else if (strcmp(mode, "refused") == 0)
    refused_meanwhile();
  else if (strcmp(mode, "lost") == 0)
    lost();
  else
    return 2;
  aiacc_finalize();
  return 0;
}
