/* A rank for the launcher's tests. The first argument says what it does:
 *
 *   run            init, barrier, finalize
 *   hold           init, then wait forever
 *   loop           init, allreduce forever; prints "looping" after the first
 *   until FILE     as loop, until rank 0 finds that file; then finalize
 *   leave          init, finalize, print "left", then wait forever
 *   again          run three times in one process, each with a sum that all ranks check
 *   vanish         init, then exit 0 without finalize
 *   skip RANK      as run, but that rank exits 0 without init
 *   fail RANK      as loop, but that rank exits 7 after some rounds
 *   crash RANK     as loop, but that rank is killed by SIGSEGV after some rounds
 *
 * An error is printed with its sentence and exits with 3. */
#include <aiacc/aiacc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check(aiacc_status_t status) {
  if (status == AIACC_OK) return;
  fprintf(stderr, "%s: %s\n", aiacc_status_name(status), aiacc_last_error());
  exit(3);
}

static void say(const char* text) {
  puts(text);
  fflush(stdout);
}

static void loop(int victim, int how) {
  enum { kCount = 1 << 18 };
  float* data = calloc(kCount, sizeof *data);
  int rank = 0;
  check(aiacc_rank(AIACC_WORLD, &rank));
  for (long round = 0;; ++round) {
    check(aiacc_allreduce(data, data, kCount, AIACC_FLOAT32, AIACC_SUM, AIACC_WORLD, NULL, NULL));
    if (round == 0) say("looping");
    if (rank == victim && round == 20) {
      if (how != 0) raise(how);
      exit(7);
    }
  }
}

static void loop_until(const char* file) {
  enum { kCount = 1 << 18 };
  float* data = calloc(kCount, sizeof *data);
  int rank = 0;
  check(aiacc_rank(AIACC_WORLD, &rank));
  for (long round = 0; data[0] == 0; ++round) {
    if (rank == 0 && access(file, F_OK) == 0) data[0] = 1;
    check(aiacc_allreduce(data, data, kCount, AIACC_FLOAT32, AIACC_SUM, AIACC_WORLD, NULL, NULL));
    if (round == 0) say("looping");
  }
  free(data);
}

/* All ranks finalize and become ranks again. */
static void again(void) {
  for (int time = 0; time < 2; ++time) {
    int rank = 0, size = 0;
    check(aiacc_rank(AIACC_WORLD, &rank));
    check(aiacc_size(AIACC_WORLD, &size));
    float sum = (float)(rank + time);
    check(aiacc_allreduce(&sum, &sum, 1, AIACC_FLOAT32, AIACC_SUM, AIACC_WORLD, NULL, NULL));
    if (sum != (float)(size * (size - 1) / 2 + size * time)) exit(4);
    void* shared = NULL;
    check(aiacc_mem_alloc(AIACC_NULL, 1 << 16, &shared));
    aiacc_group_t group = AIACC_NULL;
    check(aiacc_group_split(AIACC_WORLD, 0, -rank, NULL, &group));
    check(aiacc_allreduce(shared, shared, 1 << 14, AIACC_FLOAT32, AIACC_SUM, group, NULL, NULL));
    check(aiacc_finalize());
    if (aiacc_initialized()) exit(5);
    check(aiacc_init(NULL));
  }
}

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "run";
  const char* rank_text = getenv("AIACC_RANK");
  const int named = argc > 2 ? atoi(argv[2]) : -1;
  if (strcmp(mode, "skip") == 0 && rank_text != NULL && atoi(rank_text) == named) return 0;
  check(aiacc_init(NULL));
  if (strcmp(mode, "hold") == 0) {
    say("holding");
    for (;;) pause();
  }
  if (strcmp(mode, "vanish") == 0) _exit(0);
  if (strcmp(mode, "loop") == 0) loop(-1, 0);
  if (strcmp(mode, "until") == 0) loop_until(argv[2]);
  if (strcmp(mode, "fail") == 0) loop(named, 0);
  if (strcmp(mode, "crash") == 0) loop(named, SIGSEGV);
  if (strcmp(mode, "again") == 0) again();
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL));
  if (strcmp(mode, "leave") == 0) say("leaving");
  check(aiacc_finalize());
  if (strcmp(mode, "leave") == 0) {
    say("left");
    for (;;) pause();
  }
  return 0;
}
