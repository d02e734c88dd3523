/* A rank for process tests of the gradient engine: gradients MODE. Says on standard error what failed and exits with the
 * status's number plus 100. */
#define _DEFAULT_SOURCE
#include <aiacc/gradient.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TENSORS = 24 };
static int rank = -1, size = -1;
static size_t counts[TENSORS];
static uint32_t numbers[TENSORS];
static char names[TENSORS][32];
static float* own[TENSORS]; /* memory of the caller's */
static int has_priorities;  /* which differ between tensors, and between ranks */

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

static aiacc_gradient_t engine_of(const char* name, size_t fusion_bytes, int steps) {
  aiacc_gradient_attr_t attr = {0};
  attr.size = sizeof attr;
  attr.name = name;
  attr.fusion_bytes = fusion_bytes;
  attr.schedule_steps = steps;
  aiacc_gradient_t engine = AIACC_NULL;
  check(aiacc_gradient_create(AIACC_WORLD, &attr, &engine), "create");
  return engine;
}

static aiacc_tensor_t tensor_of(const char* name, size_t count) {
  aiacc_tensor_t tensor = {0};
  tensor.size = sizeof tensor;
  tensor.name = name;
  tensor.count = count;
  tensor.dtype = AIACC_FLOAT32;
  tensor.op = AIACC_SUM;
  return tensor;
}

/* `backwards`: in another order on every other rank, so that no memory is alike. */
static void add_all(aiacc_gradient_t engine, int backwards) {
  aiacc_tensor_t tensors[TENSORS];
  uint32_t added[TENSORS];
  for (int i = 0; i < TENSORS; ++i) {
    const int t = backwards && rank % 2 == 1 ? TENSORS - 1 - i : i;
    counts[t] = t == 3 ? 0 : t % 8 == 7 ? 70021 + (size_t)t : 1 + (size_t)(t * t * 37);
    snprintf(names[t], sizeof names[t], "layer %d", t);
    tensors[i] = tensor_of(names[t], counts[t]);
    if (has_priorities) tensors[i].priority = (t * 7 + rank) % 5 - 2;
  }
  check(aiacc_gradient_add(engine, TENSORS, tensors, added), "add");
  for (int i = 0; i < TENSORS; ++i) {
    const int t = backwards && rank % 2 == 1 ? TENSORS - 1 - i : i;
    numbers[t] = added[i];
    own[t] = calloc(counts[t] + 1, sizeof(float));
  }
}

static float value_of(int of, int t, int step, size_t i) { return (float)((of + 1) * (t + 1) + step + (int)(i % 7)); }

static float* memory_of(aiacc_gradient_t engine, int t) {
  void* memory = NULL;
  check(aiacc_gradient_memory(engine, numbers[t], &memory), "memory");
  require((memory == NULL) == (counts[t] == 0), "a tensor with elements has memory");
  return memory;
}

static int is_packed(int t, int step) { return (t + step) % 3 == 0; }

static void submit(aiacc_gradient_t engine, int t, int step, aiacc_request_t* request) {
  float* memory = is_packed(t, step) ? own[t] : memory_of(engine, t);
  for (size_t i = 0; i < counts[t]; ++i) memory[i] = value_of(rank, t, step, i);
  void* outside = is_packed(t, step) ? own[t] : NULL;
  check(aiacc_gradient_submit(engine, numbers[t], outside, outside, request), "submit");
}

static void verify(aiacc_gradient_t engine, int t, int step) {
  const float* memory = is_packed(t, step) ? own[t] : memory_of(engine, t);
  for (size_t i = 0; i < counts[t]; ++i) {
    float sum = 0;
    for (int of = 0; of < size; ++of) sum += value_of(of, t, step, i);
    if (memory[i] == sum) continue;
    fprintf(stderr, "rank %d: step %d, tensor %d, element %zu: %g, and not %g\n", rank, step, t, i, memory[i], sum);
    exit(97);
  }
}

static aiacc_gradient_stats_t stats_of(aiacc_gradient_t engine) {
  aiacc_gradient_stats_t stats = {0};
  stats.size = sizeof stats;
  check(aiacc_gradient_get_stats(engine, &stats), "stats");
  return stats;
}

static int all_are_scheduled(aiacc_gradient_t engine) {
  int32_t scheduled = stats_of(engine).scheduled;
  check(aiacc_allreduce(&scheduled, &scheduled, 1, AIACC_INT32, AIACC_MIN, AIACC_WORLD, NULL, NULL), "allreduce");
  return scheduled;
}

/* Each tensor once, beginning with the first-th, forwards or in strides. */
static void run_step(aiacc_gradient_t engine, int step, int first, int stride) {
  for (int i = 0; i < TENSORS; ++i) submit(engine, (first + i * stride) % TENSORS, step, NULL);
  check(aiacc_gradient_wait(engine), "wait");
  for (int t = 0; t < TENSORS; ++t) verify(engine, t, step);
}

/* Every rank in an order of its own, another one in each step; with requests in every third step. */
static void any_order(int backwards) {
  static const int strides[] = {1, 5, 7, 11, 13, 17, 19, 23};
  const aiacc_gradient_t engine = engine_of(NULL, 100000, 3);
  add_all(engine, backwards);
  for (int step = 0; step < 60; ++step) {
    const int stride = strides[(rank + step) % 8];
    if (step % 3 != 2) {
      run_step(engine, step, rank + step, stride);
      continue;
    }
    aiacc_request_t requests[TENSORS];
    for (int i = 0; i < TENSORS; ++i) {
      const int t = (rank + i * stride) % TENSORS;
      submit(engine, t, step, &requests[t]);
    }
    if (step % 2 == 0) {
      check(aiacc_wait_all(TENSORS, requests, AIACC_FOREVER), "wait_all");
    } else {
      for (int t = 0; t < TENSORS; ++t) {
        aiacc_status_t status;
        while ((status = aiacc_test(requests[t])) == AIACC_PENDING) usleep(100);
        check(status, "test");
      }
    }
    for (int t = 0; t < TENSORS; ++t) verify(engine, t, step);
  }
  const aiacc_gradient_stats_t stats = stats_of(engine);
  require(stats.tensors == 60 * TENSORS, "all tensors count");
  require(size == 1 || stats.rounds > 0, "ranks have negotiated");
  check(aiacc_gradient_free(engine), "free");
}

/* The same order: after some steps nothing is negotiated any more. Whether the schedule holds for so many steps more. */
static int holds(int steps) {
  const aiacc_gradient_t engine = engine_of("steady", 100000, 3);
  add_all(engine, 0);
  int step = 0;
  while (!all_are_scheduled(engine)) {
    run_step(engine, step++, 0, 1);
    require(step < (has_priorities ? 200 : 50), "a schedule is recorded");
  }
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier");
  const aiacc_gradient_stats_t before = stats_of(engine);
  for (int i = 0; i < steps; ++i) run_step(engine, step++, 0, 1);
  const aiacc_gradient_stats_t after = stats_of(engine);
  int32_t is_broken = !after.scheduled || after.breaks != 0;
  check(aiacc_allreduce(&is_broken, &is_broken, 1, AIACC_INT32, AIACC_MAX, AIACC_WORLD, NULL, NULL), "allreduce");
  if (!is_broken) {
    require(after.rounds == before.rounds, "no round");
    require(after.negotiation_messages == before.negotiation_messages, "no message");
    require(after.tensors == before.tensors + (uint64_t)(steps * TENSORS), "all tensors count");
  }
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier");
  check(aiacc_gradient_free(engine), "free");
  return !is_broken;
}

static void steady(void) { require(holds(40), "the schedule holds"); }

/* A rank that rests for a moment between gradients whose priorities have another order has the schedule broken, which is no fault. */
static void steady_with_priorities(void) {
  int attempts = 1;
  while (!holds(10)) require(++attempts <= 30, "the schedule holds");
}

static void until_scheduled(aiacc_gradient_t engine, int* step) {
  const int begun = *step;
  for (; !all_are_scheduled(engine); ++*step) {
    require(*step < begun + 200, "a schedule is recorded");
    run_step(engine, *step, 0, 1);
  }
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier");
}

/* One rank departs from the schedule, in each way. */
static void departs(void) {
  const aiacc_gradient_t engine = engine_of("departs", 100000, 2);
  add_all(engine, 0);
  const int departing = size / 2;
  int step = 0;
  /* another order */
  until_scheduled(engine, &step);
  run_step(engine, step, 0, rank == departing ? 5 : 1);
  ++step;
  run_step(engine, step, 0, rank == departing ? TENSORS - 1 : 1);
  ++step;
  /* a tensor that is new, on one rank first */
  until_scheduled(engine, &step);
  aiacc_tensor_t tensor = tensor_of("new", 1000);
  uint32_t number;
  float values[1000];
  for (int i = 0; i < 1000; ++i) values[i] = (float)(rank + i);
  for (int tensor_is_new = rank == departing, done = 0; done < 2; ++done, tensor_is_new = !tensor_is_new) {
    if (!tensor_is_new) {
      for (int t = 0; t < TENSORS; ++t) submit(engine, t, step, NULL);
    } else {
      check(aiacc_gradient_add(engine, 1, &tensor, &number), "add");
      check(aiacc_gradient_submit(engine, number, values, values, NULL), "submit");
    }
  }
  check(aiacc_gradient_wait(engine), "wait");
  for (int t = 0; t < TENSORS; ++t) verify(engine, t, step);
  ++step;
  for (int i = 0; i < 1000; ++i)
    require(values[i] == (float)(size * (size - 1) / 2 + size * i), "the new tensor's sum");
  /* a tensor that is missing at the end of a step, and comes later */
  until_scheduled(engine, &step);
  for (int t = 0; t < TENSORS; ++t) {
    if (rank != departing || t != 9) submit(engine, t, step, NULL);
  }
  if (rank == departing) check(aiacc_gradient_wait(engine), "wait without a tensor");
  if (rank == departing) submit(engine, 9, step, NULL);
  check(aiacc_gradient_wait(engine), "wait");
  for (int t = 0; t < TENSORS; ++t) verify(engine, t, step);
  ++step;
  until_scheduled(engine, &step);
  require(size == 1 || stats_of(engine).breaks >= 2, "the schedule was broken");
  check(aiacc_gradient_free(engine), "free");
}

static void two_engines(void) {
  const aiacc_gradient_t one = engine_of("one", 100000, 2);
  const aiacc_gradient_t other = engine_of("other", 100000, 2);
  const aiacc_tensor_t tensor = tensor_of("tensor", 5000);
  uint32_t numbers_of[2];
  check(aiacc_gradient_add(one, 1, &tensor, &numbers_of[0]), "add");
  check(aiacc_gradient_add(other, 1, &tensor, &numbers_of[1]), "add");
  static float values[2][5000];
  for (int step = 0; step < 20; ++step) {
    for (int e = 0; e < 2; ++e) {
      for (int i = 0; i < 5000; ++i) values[e][i] = (float)(rank + step * e);
    }
    const int first = (rank + step) % 2; /* ranks disagree about which comes first */
    for (int e = 0; e < 2; ++e) {
      const int which = e == 0 ? first : 1 - first;
      check(aiacc_gradient_submit(which == 0 ? one : other, numbers_of[which], values[which], values[which], NULL),
            "submit");
    }
    check(aiacc_gradient_wait(one), "wait");
    check(aiacc_gradient_wait(other), "wait");
    for (int e = 0; e < 2; ++e) {
      require(values[e][4999] == (float)(size * (size - 1) / 2 + size * step * e), "the sums of two engines");
    }
  }
  check(aiacc_gradient_free(other), "free");
  /* the other one is left to aiacc_finalize */
}

static void say(const char* what, aiacc_status_t status) {
  fprintf(stderr, "rank %d: %s: %s: %s\n", rank, what, aiacc_status_name(status), aiacc_last_error());
}

static void mismatch(void) {
  const aiacc_gradient_t engine = engine_of("mismatch", 0, 0);
  aiacc_tensor_t tensor = tensor_of("weight", rank == size - 1 ? 20 : 10);
  uint32_t number;
  check(aiacc_gradient_add(engine, 1, &tensor, &number), "add");
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier");
  /* A submission that follows the exchange of descriptions says it already. */
  aiacc_status_t status = aiacc_gradient_submit(engine, number, NULL, NULL, NULL);
  if (status == AIACC_OK) status = aiacc_gradient_wait(engine);
  say("wait", status);
  require(status == AIACC_ERR_MISMATCH || size == 1, "a mismatch is told");
  require(size == 1 || aiacc_gradient_submit(engine, number, NULL, NULL, NULL) == AIACC_ERR_ABORTED, "it is over");
  int one = 1;
  check(aiacc_allreduce(&one, &one, 1, AIACC_INT32, AIACC_SUM, AIACC_WORLD, NULL, NULL), "the world goes on");
  require(one == size, "the world's sum");
  check(aiacc_gradient_free(engine), "free");
}

static void misuse(void) {
  const aiacc_gradient_t engine = engine_of("misuse", 0, 0);
  check(aiacc_gradient_wait(engine), "wait without a submission");
  check(aiacc_gradient_flush(engine), "flush without a submission");
  uint32_t number = 0, again = 0;
  aiacc_tensor_t tensor = tensor_of("weight", 10);
  check(aiacc_gradient_add(engine, 1, &tensor, &number), "add");
  check(aiacc_gradient_add(engine, 1, &tensor, &again), "add again");
  require(number == again, "the same name has the same number");
  tensor.count = 11;
  require(aiacc_gradient_add(engine, 1, &tensor, &again) == AIACC_ERR_INVALID_ARGUMENT, "another count is refused");
  require(strstr(aiacc_last_error(), "11 fp32, sum") && strstr(aiacc_last_error(), "10 fp32, sum"), "with both values");
  tensor.name = "";
  require(aiacc_gradient_add(engine, 1, &tensor, &again) == AIACC_ERR_INVALID_ARGUMENT, "a tensor has a name");
  require(aiacc_gradient_submit(engine, 77, NULL, NULL, NULL) == AIACC_ERR_INVALID_ARGUMENT, "no such tensor");
  int in_place = 1;
  require(aiacc_gradient_in_place(engine, 77, &in_place) == AIACC_ERR_INVALID_ARGUMENT, "nor in place");
  require(aiacc_gradient_in_place(engine, number, NULL) == AIACC_ERR_INVALID_ARGUMENT, "it is stored somewhere");
  check(aiacc_gradient_in_place(engine, number, &in_place), "in place");
  require(in_place == 0, "a short tensor is copied");
  aiacc_request_t request = AIACC_NULL;
  if (rank == 0) {
    check(aiacc_gradient_submit(engine, number, NULL, NULL, &request), "submit");
    require(aiacc_gradient_submit(engine, number, NULL, NULL, NULL) == AIACC_ERR_INVALID_STATE || size == 1,
            "twice is refused");
    if (size > 1) require(strstr(aiacc_last_error(), "'weight'") != NULL, "by its name");
    if (size > 1) require(aiacc_gradient_remove(engine, 1, &number) == AIACC_ERR_INVALID_STATE, "it is outstanding");
  }
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier");
  if (rank != 0) check(aiacc_gradient_submit(engine, number, NULL, NULL, &request), "submit");
  check(aiacc_wait(request), "wait");
  check(aiacc_gradient_remove(engine, 1, &number), "remove");
  require(aiacc_gradient_submit(engine, number, NULL, NULL, NULL) == AIACC_ERR_INVALID_ARGUMENT, "it was removed");
  const pid_t child = fork();
  if (child == 0) {
    const int refused = aiacc_gradient_wait(engine) == AIACC_ERR_INVALID_STATE &&
                        aiacc_gradient_submit(engine, number, NULL, NULL, NULL) == AIACC_ERR_INVALID_STATE &&
                        aiacc_gradient_free(engine) == AIACC_ERR_INVALID_STATE;
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  require(waitpid(child, &status, 0) == child && status == 0, "a forked child is refused");
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier");
  check(aiacc_gradient_free(engine), "free");
  require(aiacc_gradient_wait(engine) == AIACC_ERR_INVALID_HANDLE, "it is gone");
}

/* Rank 0 is ready before the others. */
static void wait_for_one(void) {
  const aiacc_gradient_t engine = engine_of("wait for", 0, -1);
  const aiacc_tensor_t tensors[2] = {tensor_of("weight", 10), tensor_of("bias", 3)};
  uint32_t added[2];
  check(aiacc_gradient_add(engine, 2, tensors, added), "add");
  check(aiacc_gradient_wait_for(engine, added[0], 60000), "not submitted yet");
  require(aiacc_gradient_wait_for(engine, 77, 10) == AIACC_ERR_INVALID_ARGUMENT, "no such tensor");
  require(aiacc_gradient_wait_for(engine, added[0], -1) == AIACC_ERR_INVALID_ARGUMENT, "a time is not negative");
  for (int step = 0; step < 5; ++step) {
    float values[10];
    for (int i = 0; i < 10; ++i) values[i] = (float)(rank + i + step);
    if (rank == 0) {
      check(aiacc_gradient_submit(engine, added[0], values, values, NULL), "submit");
      const aiacc_status_t early = aiacc_gradient_wait_for(engine, added[0], size > 1 ? step * 10 : 60000);
      require(early == (size > 1 ? AIACC_PENDING : AIACC_OK), "the others are not ready");
    }
    check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier");
    if (rank != 0) check(aiacc_gradient_submit(engine, added[0], values, values, NULL), "submit");
    check(aiacc_gradient_wait_for(engine, added[0], 60000), "wait for one");
    for (int i = 0; i < 10; ++i)
      require(values[i] == (float)(size * (size - 1) / 2 + size * (i + step)), "the result is there");
    /* another tensor is outstanding meanwhile */
    check(aiacc_gradient_submit(engine, added[1], NULL, NULL, NULL), "submit");
    check(aiacc_gradient_wait_for(engine, added[0], 0), "it is not outstanding");
    check(aiacc_gradient_wait(engine), "wait");
  }
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier");
  /* an engine that ends meanwhile ends the wait */
  if (rank != size - 1) {
    aiacc_status_t status = aiacc_gradient_submit(engine, added[0], NULL, NULL, NULL);
    if (status == AIACC_OK) status = aiacc_gradient_wait_for(engine, added[0], 60000);
    require(status == AIACC_ERR_ABORTED, "the others are told");
  }
  check(aiacc_gradient_free(engine), "free");
  require(aiacc_gradient_wait_for(engine, added[0], 0) == AIACC_ERR_INVALID_HANDLE, "it is gone");
}

/* The last rank frees its engine while others wait for it. */
static void freed(void) {
  const aiacc_gradient_t engine = engine_of("freed", 0, 0);
  aiacc_tensor_t tensor = tensor_of("weight", 10);
  uint32_t number = 0;
  check(aiacc_gradient_add(engine, 1, &tensor, &number), "add");
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier");
  if (rank != size - 1) {
    aiacc_status_t status = aiacc_gradient_submit(engine, number, NULL, NULL, NULL);
    if (status == AIACC_OK) status = aiacc_gradient_wait(engine);
    say("wait", status);
    require(status == AIACC_ERR_ABORTED, "the others are told");
  }
  check(aiacc_gradient_free(engine), "free");
}

/* The last rank frees its engine when the step is reduced, before the others have looked at each of its results. */
static void left(void) {
  const aiacc_gradient_t engine = engine_of("left", 0, 0);
  const aiacc_tensor_t tensors[2] = {tensor_of("weight", 10), tensor_of("bias", 10)};
  uint32_t numbers[2];
  check(aiacc_gradient_add(engine, 2, tensors, numbers), "add");
  for (int t = 0; t < 2; ++t) check(aiacc_gradient_submit(engine, numbers[t], NULL, NULL, NULL), "submit");
  char has_freed = 1;
  if (rank == size - 1) {
    check(aiacc_gradient_wait(engine), "wait");
    check(aiacc_gradient_free(engine), "free");
    for (int other = 0; other < rank; ++other)
      check(aiacc_send(&has_freed, 1, AIACC_INT8, other, 0, AIACC_WORLD, NULL, NULL), "send");
    return;
  }
  check(aiacc_recv(&has_freed, 1, AIACC_INT8, size - 1, 0, AIACC_WORLD, NULL, NULL), "recv");
  check(aiacc_gradient_flush(engine), "flush");
  for (int t = 0; t < 2; ++t) check(aiacc_gradient_wait_for(engine, numbers[t], 60000), "wait for a tensor");
  check(aiacc_gradient_wait(engine), "wait");
  aiacc_status_t status = aiacc_gradient_submit(engine, numbers[0], NULL, NULL, NULL);
  if (status == AIACC_OK) status = aiacc_gradient_wait(engine); /* the engine had not been told yet */
  say("submit", status);
  require(status == AIACC_ERR_ABORTED, "nothing follows");
  check(aiacc_gradient_free(engine), "free");
}

/* The last rank frees its engine after a step. The others join, if they are to know, when they have heard of it; what they have submitted has
 * its result. */
static void joins(const char* name, int knows) {
  const aiacc_gradient_t engine = engine_of(name, 0, 0);
  const aiacc_tensor_t tensor = tensor_of("weight", 10);
  uint32_t number;
  check(aiacc_gradient_add(engine, 1, &tensor, &number), "add");
  check(aiacc_gradient_submit(engine, number, NULL, NULL, NULL), "submit");
  check(aiacc_gradient_wait(engine), "wait");
  if (rank != size - 1) {
    while (knows && aiacc_gradient_add(engine, 1, &tensor, &number) == AIACC_OK) usleep(1000);
    const aiacc_status_t status = aiacc_gradient_join(engine, NULL);
    say("join", status);
    require(status == AIACC_ERR_ABORTED, "nobody joins any more");
    check(aiacc_gradient_wait(engine), "what was submitted has its result");
  }
  check(aiacc_gradient_free(engine), "free");
}

/* The last rank submits one of two tensors, when the file `begins` is there if there is such an argument; they have `seconds`. */
static void late(const char* seconds, const char* begins) {
  aiacc_gradient_attr_t attr = {0};
  attr.size = sizeof attr;
  attr.name = "late";
  attr.timeout_ms = atoi(seconds) * 1000;
  aiacc_gradient_t engine = AIACC_NULL;
  check(aiacc_gradient_create(AIACC_WORLD, &attr, &engine), "create");
  const aiacc_tensor_t tensors[2] = {tensor_of("weight", 10), tensor_of("bias", 10)};
  uint32_t added[2];
  check(aiacc_gradient_add(engine, 2, tensors, added), "add");
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier"); /* the times begin when all are here */
  check(aiacc_gradient_submit(engine, added[0], NULL, NULL, NULL), "submit");
  check(aiacc_gradient_wait(engine), "wait for what all have submitted");
  while (begins != NULL && access(begins, F_OK) != 0) usleep(10000);
  check(aiacc_gradient_submit(engine, added[0], NULL, NULL, NULL), "submit");
  if (rank != size - 1) check(aiacc_gradient_submit(engine, added[1], NULL, NULL, NULL), "submit");
  const aiacc_status_t status = aiacc_gradient_wait(engine);
  say("wait", status);
  if (rank != size - 1) require(status == AIACC_ERR_TIMEOUT || status == AIACC_ERR_ABORTED, "the time is over");
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier");
  check(aiacc_gradient_free(engine), "free");
}

static volatile sig_atomic_t is_stopped;
static void stop(int number) { (void)number, is_stopped = 1; }

/* All make a step, and end when the file of the argument is there. */
static void stay(const char* ends) {
  const aiacc_gradient_t engine = engine_of("stay", 100000, 3);
  add_all(engine, 0);
  run_step(engine, 0, 0, 1);
  while (access(ends, F_OK) != 0) usleep(10000);
  check(aiacc_gradient_free(engine), "free");
}

/* Rank 1 dies in the middle of a step. Survivors end when aiaccrun stops them and the file of the argument, if there is one, is there. */
static void death(void) {
  signal(SIGTERM, stop);
  const aiacc_gradient_t engine = engine_of("death", 100000, 2);
  add_all(engine, 0);
  for (int step = 0; step < 10; ++step) run_step(engine, step, 0, 1);
  /* Rank 1 may be done with a step while others still wait for what it sent last. */
  char done = 1;
  for (int other = 0; rank == 1 && other < size; ++other) {
    if (other != 1) check(aiacc_recv(&done, 1, AIACC_INT8, other, 0, AIACC_WORLD, NULL, NULL), "recv");
  }
  if (rank != 1) check(aiacc_send(&done, 1, AIACC_INT8, 1, 0, AIACC_WORLD, NULL, NULL), "send");
  if (rank == 1) {
    for (int t = 0; t < TENSORS / 2; ++t) submit(engine, t, 10, NULL);
    raise(SIGKILL);
  }
  for (int t = 0; t < TENSORS; ++t) {
    float* memory = memory_of(engine, t);
    if (memory != NULL) memory[0] = 1;
    const aiacc_status_t status = aiacc_gradient_submit(engine, numbers[t], NULL, NULL, NULL);
    if (status != AIACC_OK) {
      say("survivor", status);
      return;
    }
  }
  say("survivor", aiacc_gradient_wait(engine));
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  check(aiacc_init(NULL), "init");
  check(aiacc_rank(AIACC_WORLD, &rank), "rank");
  check(aiacc_size(AIACC_WORLD, &size), "size");
  const char* mode = argv[1];
  if (strcmp(mode, "order") == 0) any_order(0);
  if (strcmp(mode, "places") == 0) any_order(1);
  if (strcmp(mode, "steady") == 0) steady();
  if (strcmp(mode, "priorities") == 0) {
    has_priorities = 1;
    any_order(1);
    steady_with_priorities();
  }
  if (strcmp(mode, "departs") == 0) departs();
  if (strcmp(mode, "two") == 0) two_engines();
  if (strcmp(mode, "mismatch") == 0) mismatch();
  if (strcmp(mode, "misuse") == 0) misuse();
  if (strcmp(mode, "wait-for") == 0) wait_for_one();
  if (strcmp(mode, "freed") == 0) freed();
  if (strcmp(mode, "left") == 0) left();
  if (strcmp(mode, "joins-late") == 0) {
    joins("early", 0);
    joins("left", 1);
  }
  if (strcmp(mode, "late") == 0) late(argc > 2 ? argv[2] : "2", argc > 3 ? argv[3] : NULL);
  if (strcmp(mode, "stay") == 0 && argc > 2) stay(argv[2]);
  if (strcmp(mode, "death") == 0) {
    death();
    while (!is_stopped || (argc > 2 && access(argv[2], F_OK) != 0))
      usleep(10000); /* aiaccrun hears of rank 1's end before theirs */
    usleep(300000);  /* and so do the other survivors */
    return 4;
  }
  check(aiacc_finalize(), "finalize");
  return 0;
}
