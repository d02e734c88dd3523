/* A rank of an elastic job: worlds DIRECTORY [STEPS] [STEP:PLACE]... counts steps with the other ranks, 12 or STEPS. At STEP the process that
 * aiaccrun started as rank PLACE kills itself, once. The others leave their world, enter the next one with whoever is there
 * then, and go on at the step of its rank 0. So do all when aiaccrun says that the next world has other ranks. STEP_MS: how long a
 * step takes at least. The job goes on until ten steps in a world of LAST_SIZE ranks, and in one with the process of LAST_PLACE or a later
 * one, and until there is the file UNTIL, where these are set, however long that takes. */
#include <aiacc/aiacc.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kSizes = 8 };

static void check(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "%s: %s\n", what, aiacc_last_error());
  exit(9);
}

/* Whether this process is the first to come here with that word. */
static int first(const char* directory, const char* word) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", directory, word);
  const int file = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
  if (file >= 0) close(file);
  return file >= 0;
}

static void die_if_asked(int argc, char** argv, int step, int place) {
  for (int i = 2; i < argc; ++i) {
    int at = 0, who = 0;
    if (sscanf(argv[i], "%d:%d", &at, &who) != 2) continue;
    if (at == step && who == place && first(argv[1], argv[i])) kill(getpid(), SIGKILL);
  }
}

/* The sum over all ranks, in shared memory where there is some. */
static aiacc_status_t one_step(int step, int size, int rank) {
  double* memory = NULL;
  check(aiacc_mem_alloc(AIACC_NULL, sizeof(double) * 1000, (void**)&memory) == AIACC_OK, "aiacc_mem_alloc");
  for (int i = 0; i < 1000; ++i) memory[i] = step + rank;
  const aiacc_status_t status =
      aiacc_allreduce(memory, memory, 1000, AIACC_FLOAT64, AIACC_SUM, AIACC_WORLD, NULL, NULL);
  if (status == AIACC_OK) {
    const double expected = (double)size * step + size * (size - 1) / 2.0;
    check(memory[0] == expected && memory[999] == expected, "the sum is wrong");
  }
  check(aiacc_mem_free(memory) == AIACC_OK, "aiacc_mem_free");
  return status;
}

/* What all ranks of a world know after a step in it. */
struct known {
  int32_t changes; /* the next world has other ranks */
  int32_t place;   /* the last one that a process here was started as */
  int32_t found;   /* there is the file UNTIL */
};

static aiacc_status_t ask(int place, struct known* all) {
  int own = 0;
  check(aiacc_hosts_updated(&own) == AIACC_OK, "aiacc_hosts_updated");
  const char* file = getenv("UNTIL");
  const struct known said = {own, place, file != NULL && access(file, F_OK) == 0};
  return aiacc_allreduce(&said, all, sizeof said / sizeof(int32_t), AIACC_INT32, AIACC_MAX, AIACC_WORLD, NULL, NULL);
}

/* Whether there is a step to do, of which `done` are done and `here` of them in this world of `size` ranks. */
static int goes_on(int done, int steps, int here, int size, const struct known* all) {
  const char* last = getenv("LAST_SIZE");
  const char* place = getenv("LAST_PLACE");
  return done < steps || (last != NULL && (size != atoi(last) || here < 10)) ||
         (place != NULL && (all->place < atoi(place) || here < 10)) || (getenv("UNTIL") != NULL && !all->found);
}

static void rest(void) {
  const char* text = getenv("STEP_MS");
  const int ms = text == NULL ? 0 : atoi(text);
  nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

int main(int argc, char** argv) {
  const int place = atoi(getenv("AIACC_RANK"));
  const int steps = argc > 2 && strchr(argv[2], ':') == NULL ? atoi(argv[2]) : 12;
  int step = 0, worlds = 0, sizes[kSizes];
  for (;;) {
    const aiacc_status_t entered = aiacc_init(NULL);
    if (entered == AIACC_ERR_ABORTED && worlds > 0) {
      printf("%d is not in the next world: %s\n", place, aiacc_last_error());
      return 0;
    }
    check(entered == AIACC_OK, "aiacc_init");
    int rank = -1, size = -1;
    check(aiacc_rank(AIACC_WORLD, &rank) == AIACC_OK && aiacc_size(AIACC_WORLD, &size) == AIACC_OK, "rank and size");
    sizes[worlds++ % kSizes] = size;
    aiacc_status_t status = aiacc_broadcast(&step, sizeof step, AIACC_UINT8, 0, AIACC_WORLD, NULL, NULL);
    struct known all = {0, -1, 0};
    int here = 0;
    while (status == AIACC_OK && all.changes == 0 && goes_on(step, steps, here, size, &all)) {
      die_if_asked(argc, argv, step, place);
      rest();
      status = one_step(step, size, rank);
      if (status == AIACC_OK) ++step, ++here;
      if (status == AIACC_OK) status = ask(place, &all);
    }
    if (status == AIACC_OK && all.changes != 0 && goes_on(step, steps, here, size, &all)) {
      check(aiacc_finalize() == AIACC_OK, "aiacc_finalize before the next world");
      continue;
    }
    if (status == AIACC_OK) {
      printf("%d is rank %d; sizes", place, rank);
      for (int i = 0; i < worlds && i < kSizes; ++i) printf(" %d", sizes[i]);
      printf("\n");
      check(aiacc_finalize() == AIACC_OK, "aiacc_finalize");
      return 0;
    }
    check(status == AIACC_ERR_PEER_FAILED, "a step");
    const aiacc_status_t left = aiacc_finalize();
    check(left == AIACC_OK || left == AIACC_ERR_PEER_FAILED, "aiacc_finalize after a loss");
    check(!aiacc_initialized(), "it has left");
  }
}
