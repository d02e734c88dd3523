/* A rank for process tests of the gradient engine's tuner: gradients_tuned MODE. Says on standard error what failed and exits
 * with the status's number plus 100. */
#include <aiacc/gradient.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 12, ELEMENTS = 90001 };
static int rank = -1, size = -1;
static uint32_t numbers[TENSORS];
static aiacc_gradient_t engine = AIACC_NULL;

static void check(aiacc_status_t status, const char* what) {
  if (status == AIACC_OK) return;
  fprintf(stderr, "rank %d: %s: %s: %s\n", rank, what, aiacc_status_name(status), aiacc_last_error());
  exit(100 + (int)status);
}

static void require(int condition, const char* what) {
  if (condition) return;
  fprintf(stderr, "rank %d: not true: %s\n", rank, what);
  exit(99);
}

static void make(const char* name, int tune) {
  aiacc_gradient_attr_t attr = {0};
  attr.size = sizeof attr;
  attr.name = name;
  attr.fusion_bytes = 1 << 20;
  attr.schedule_steps = 2;
  attr.tune = tune;
  check(aiacc_gradient_create(AIACC_WORLD, &attr, &engine), "create");
  aiacc_tensor_t tensors[TENSORS];
  static char names[TENSORS][16];
  memset(tensors, 0, sizeof tensors);
  for (int t = 0; t < TENSORS; ++t) {
    snprintf(names[t], sizeof names[t], "layer %d", t);
    tensors[t].size = sizeof tensors[t];
    tensors[t].name = names[t];
    tensors[t].count = t == 5 ? 0 : ELEMENTS / (size_t)(1 + t % 4 * t);
    tensors[t].dtype = AIACC_FLOAT32;
    tensors[t].op = AIACC_SUM;
  }
  check(aiacc_gradient_add(engine, TENSORS, tensors, numbers), "add");
}

static float value_of(int of, int t, int step, size_t i) { return (float)((of + 1) * (t + 1) + step + (int)(i % 7)); }

/* `departs`: this rank submits in another order and says in the middle of it that the step is over. */
static void run_step(int step, int departs) {
  float* memory[TENSORS];
  for (int k = 0; k < TENSORS; ++k) {
    const int t = ((departs ? TENSORS / 2 : 0) + k) % TENSORS;
    void* place = NULL;
    check(aiacc_gradient_memory(engine, numbers[t], &place), "memory");
    memory[t] = place;
    const size_t count = t == 5 ? 0 : ELEMENTS / (size_t)(1 + t % 4 * t);
    for (size_t i = 0; i < count; ++i) memory[t][i] = value_of(rank, t, step, i);
    check(aiacc_gradient_submit(engine, numbers[t], NULL, NULL, NULL), "submit");
    if (departs && k == TENSORS / 2) check(aiacc_gradient_flush(engine), "flush");
  }
  check(aiacc_gradient_wait(engine), "wait");
  for (int t = 0; t < TENSORS; ++t) {
    const size_t count = t == 5 ? 0 : ELEMENTS / (size_t)(1 + t % 4 * t);
    for (size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (int of = 0; of < size; ++of) sum += value_of(of, t, step, i);
      require(memory[t][i] == sum, "the sum over all ranks");
    }
  }
}

static aiacc_gradient_stats_t stats_of(void) {
  aiacc_gradient_stats_t stats = {0};
  stats.size = sizeof stats;
  check(aiacc_gradient_get_stats(engine, &stats), "stats");
  return stats;
}

/* All ranks take the same number of steps. */
static int settle(int step, int most, int departing) {
  int settled = 0;
  for (; !settled; ++step) {
    require(step < most, "the tuner settles in time");
    run_step(step, step % 13 == 12 && step < 45 && rank == departing);
    const int mine = stats_of().tuning == 2;
    check(aiacc_allreduce(&mine, &settled, 1, AIACC_INT32, AIACC_MIN, AIACC_WORLD, NULL, NULL), "allreduce");
  }
  return step;
}

static void agree_on_settings(void) {
  const aiacc_gradient_stats_t stats = stats_of();
  enum { SETTINGS = 4 };
  int64_t mine[SETTINGS] = {(int64_t)stats.fusion_bytes, stats.in_flight, 0, 0}, most[SETTINGS], least[SETTINGS];
  if (stats.algorithm != NULL) strncpy((char*)&mine[2], stats.algorithm, sizeof mine - 2 * sizeof *mine);
  check(aiacc_allreduce(mine, most, SETTINGS, AIACC_INT64, AIACC_MAX, AIACC_WORLD, NULL, NULL), "allreduce");
  check(aiacc_allreduce(mine, least, SETTINGS, AIACC_INT64, AIACC_MIN, AIACC_WORLD, NULL, NULL), "allreduce");
  require(memcmp(most, least, sizeof most) == 0, "all ranks have the same settings");
}

static void settles(void) {
  make("first", 1);
  require(stats_of().tuning == 1, "the tuner is on");
  int step = settle(0, 80, -1);
  for (int more = 0; more < 25; ++more) run_step(step++, 0);
  aiacc_gradient_stats_t stats = stats_of();
  require(stats.tune_searches >= 1 && stats.tune_steps >= 10, "it has searched");
  require(stats.breaks == 0, "settings change without a break");
  agree_on_settings();
  check(aiacc_gradient_free(engine), "free");
}

static void departs(void) {
  make("departs", 1);
  settle(0, 2000, size - 1);
  agree_on_settings();
  require(stats_of().breaks > 0, "a rank has departed");
  check(aiacc_gradient_free(engine), "free");
}

/* An engine of a later job with the same model. */
static void remembers(void) {
  make("second", 1);
  settle(0, 12, -1);
  require(stats_of().tune_steps <= 2, "there is no search");
  agree_on_settings();
  check(aiacc_gradient_free(engine), "free");
}

static void is_off(void) {
  make("off", -1);
  for (int step = 0; step < 10; ++step) run_step(step, 0);
  const aiacc_gradient_stats_t stats = stats_of();
  require(stats.tuning == 0 && stats.fusion_bytes == 1 << 20 && stats.tune_steps == 0, "the tuner is off");
  check(aiacc_gradient_free(engine), "free");
}

static void differs(void) {
  make("differs", rank == 0 ? 1 : -1);
  run_step(0, 0);
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  check(aiacc_init(NULL), "init");
  check(aiacc_rank(AIACC_WORLD, &rank), "rank");
  check(aiacc_size(AIACC_WORLD, &size), "size");
  if (strcmp(argv[1], "settles") == 0) settles();
  if (strcmp(argv[1], "departs") == 0) departs();
  if (strcmp(argv[1], "remembers") == 0) remembers();
  if (strcmp(argv[1], "off") == 0) is_off();
  if (strcmp(argv[1], "differs") == 0) differs();
  check(aiacc_finalize(), "finalize");
  return 0;
}
