/* A rank for process tests: rank MODE [ARGUMENT [FILE]]. Says on standard error what failed and exits with the status's number
 * plus 100, unless the mode says otherwise. */
#include <aiacc/aiacc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static int rank = -1, size = -1;
static const char* file = NULL; /* what a mode may wait for */

static void check(aiacc_status_t status, const char* what) {
  if (status == AIACC_OK) return;
  fprintf(stderr, "%s: %s (about rank %d): %s\n", what, aiacc_status_name(status), aiacc_last_error_rank(),
          aiacc_last_error());
  exit(100 + (int)status);
}

static void init(void) {
  check(aiacc_init(NULL), "init");
  check(aiacc_rank(AIACC_WORLD, &rank), "rank");
  check(aiacc_size(AIACC_WORLD, &size), "size");
}

static void sum(size_t count) {
  float* data = calloc(count, sizeof *data);
  if (data == NULL) exit(98);
  for (size_t i = 0; i < count; ++i) data[i] = (float)(rank + 1);
  check(aiacc_allreduce(data, data, count, AIACC_FLOAT32, AIACC_SUM, AIACC_WORLD, NULL, NULL), "allreduce");
  for (size_t i = 0; i < count; ++i) {
    if (data[i] != (float)(size * (size + 1) / 2)) {
      fprintf(stderr, "element %zu is %g\n", i, (double)data[i]);
      exit(99);
    }
  }
  free(data);
}

/* Init, a barrier, finalize: what every job does. */
static int barrier(const char* argument) {
  (void)argument;
  init();
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier");
  check(aiacc_finalize(), "finalize");
  return 0;
}

static void rest(int ms) { usleep((useconds_t)ms * 1000); }

/* Of an elastic job, A:B: rank 0 ends A ms after its only world, the others want a further one B ms after it. */
static int further(const char* argument) {
  int first = 0, others = 0;
  if (argument == NULL || sscanf(argument, "%d:%d", &first, &others) != 2) return 2;
  init();
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier");
  check(aiacc_finalize(), "finalize");
  rest(rank == 0 ? first : others);
  if (rank == 0) return 0;
  init();
  return 0;
}

/* Sums of all sizes; with an argument, for that many rounds. */
static int loop(const char* argument) {
  init();
  const long rounds = argument ? atol(argument) : 3;
  for (long round = 0; round < rounds; ++round) {
    for (size_t count = 1; count <= 300000; count = count * 7 + 1) sum(count);
  }
  check(aiacc_finalize(), "finalize");
  return 0;
}

static int no_finalize(const char* argument) {
  (void)argument;
  init();
  return 0;
}

/* Rank 1 never initialises; the others do. */
static int never(const char* argument) {
  (void)argument;
  const char* me = getenv("AIACC_RANK");
  if (me != NULL && strcmp(me, "1") == 0) return 0;
  return barrier(NULL);
}

/* Rank 1 ends as the argument says in the middle of a loop of sums, when the others have left the first one and the file is there; they print
 * their error and exit with 0. */
static int death(const char* argument) {
  signal(SIGTERM, SIG_IGN); /* the launcher ends the others at once; here they report their error first */
  init();
  sum(10);
  char has_left = 1;
  for (int other = 0; rank == 1 && other < size; ++other) {
    if (other != 1) check(aiacc_recv(&has_left, 1, AIACC_INT8, other, 0, AIACC_WORLD, NULL, NULL), "recv");
  }
  if (rank != 1) check(aiacc_send(&has_left, 1, AIACC_INT8, 1, 0, AIACC_WORLD, NULL, NULL), "send");
  if (rank == 1) {
    while (file != NULL && access(file, F_OK) != 0) usleep(10000);
    if (strcmp(argument, "kill") == 0) kill(getpid(), 9);
    exit(atoi(argument));
  }
  float data[1000] = {0};
  aiacc_status_t status = AIACC_OK;
  while (status == AIACC_OK) {
    status = aiacc_allreduce(data, data, 1000, AIACC_FLOAT32, AIACC_SUM, AIACC_WORLD, NULL, NULL);
  }
  fprintf(stderr, "survivor %d: %s, rank %d: %s\n", rank, aiacc_status_name(status), aiacc_last_error_rank(),
          aiacc_last_error());
  /* An exit without it would be a failure too, and might be reported as the first one. */
  check(aiacc_finalize(), "finalize");
  return 0;
}

/* Rank 1 is killed among broadcasts of rank ARGUMENT; the others print their error and exit with 0. */
static int broadcasts(const char* argument) {
  signal(SIGTERM, SIG_IGN);
  init();
  const int root = atoi(argument);
  aiacc_status_t status = AIACC_OK;
  for (int i = 0; status == AIACC_OK; ++i) {
    if (rank == 1 && i == 1000) kill(getpid(), 9);
    int value = rank == root ? i : -1;
    status = aiacc_broadcast(&value, 1, AIACC_INT32, root, AIACC_WORLD, NULL, NULL);
    if (status == AIACC_OK && value != i) return 94;
  }
  fprintf(stderr, "survivor %d: %s, rank %d: %s\n", rank, aiacc_status_name(status), aiacc_last_error_rank(),
          aiacc_last_error());
  check(aiacc_finalize(), "finalize");
  return 0;
}

/* One rank has a wrong size. */
static int wrong_size(const char* argument) {
  (void)argument;
  const char* me = getenv("AIACC_RANK");
  aiacc_init_attr_t attr = {0};
  attr.size = sizeof attr;
  if (me != NULL && strcmp(me, "1") == 0) {
    attr.world_size_set = 1;
    attr.rank = 1;
    attr.world_size = 7;
  }
  check(aiacc_init(&attr), "init");
  check(aiacc_finalize(), "finalize");
  return 0;
}

/* A second process of the same rank initialises while the first lives. */
static int second_claim(const char* argument) {
  init();
  if (rank == 0) {
    const pid_t child = fork();
    if (child == 0) {
      execl(argument, argument, "barrier", (char*)NULL);
      _exit(98);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 100 + AIACC_ERR_INVALID_STATE) {
      fprintf(stderr, "the second claim ended with %d\n", status);
      return 97;
    }
  }
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier");
  check(aiacc_finalize(), "finalize");
  return 0;
}

static int forked(const char* argument) {
  (void)argument;
  init();
  const pid_t child = fork();
  if (child == 0) {
    const aiacc_status_t status = aiacc_barrier(AIACC_WORLD, NULL, NULL);
    fprintf(stderr, "child: %s\n", aiacc_last_error());
    _exit(status == AIACC_ERR_INVALID_STATE ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) return 96;
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier");
  check(aiacc_finalize(), "finalize");
  return 0;
}

/* Rank 0 keeps all others waiting in a barrier until there is a file of the name ARGUMENT. */
static int idle(const char* argument) {
  init();
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier");
  if (rank == 0) {
    fprintf(stdout, "waiting\n");
    fflush(stdout);
    while (access(argument, F_OK) != 0) usleep(100000);
  }
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier");
  check(aiacc_finalize(), "finalize");
  return 0;
}

/* Sums until there is a file of the name ARGUMENT. */
static int until(const char* argument) {
  init();
  int go_on = 1;
  while (go_on) {
    sum(1000);
    sum(300000);
    if (rank == 0) go_on = access(argument, F_OK) != 0;
    check(aiacc_broadcast(&go_on, 1, AIACC_INT32, 0, AIACC_WORLD, NULL, NULL), "broadcast");
  }
  check(aiacc_finalize(), "finalize");
  return 0;
}

/* Rank 0 makes no call until there is a file of the name ARGUMENT, rank 1 says its number and waits to be killed, and the others
 * wait for both; all print their error and exit with 0. */
static int absent(const char* argument) {
  init();
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier");
  if (rank == 1) {
    printf("%d\n", (int)getpid());
    fflush(stdout);
    for (;;) pause();
  }
  while (rank == 0 && access(argument, F_OK) != 0) usleep(10000);
  const aiacc_status_t status = aiacc_barrier(AIACC_WORLD, NULL, NULL);
  fprintf(stderr, "survivor %d: %s, rank %d: %s\n", rank, aiacc_status_name(status), aiacc_last_error_rank(),
          aiacc_last_error());
  check(aiacc_finalize(), "finalize");
  return 0;
}

/* Ranks disagree on what they call. */
static int mismatch(const char* argument) {
  (void)argument;
  init();
  float data[20] = {0};
  const aiacc_status_t status =
      aiacc_allreduce(data, data, rank == 1 ? 20 : 10, AIACC_FLOAT32, AIACC_SUM, AIACC_WORLD, NULL, NULL);
  fprintf(stderr, "rank %d: %s\n", rank, aiacc_last_error());
  if (status != AIACC_ERR_MISMATCH) return 95;
  check(aiacc_finalize(), "finalize");
  return 0;
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    int (*run)(const char* argument);
  } modes[] = {{"barrier", barrier},   {"loop", loop},      {"no-finalize", no_finalize},
               {"never", never},       {"death", death},    {"wrong-size", wrong_size},
               {"forked", forked},     {"idle", idle},      {"second-claim", second_claim},
               {"mismatch", mismatch}, {"until", until},    {"broadcasts", broadcasts},
               {"absent", absent},     {"further", further}};
  if (argc > 3) file = argv[3];
  for (size_t i = 0; argc > 1 && i < sizeof modes / sizeof *modes; ++i) {
    if (strcmp(argv[1], modes[i].name) == 0) return modes[i].run(argc > 2 ? argv[2] : NULL);
  }
  fprintf(stderr, "usage: rank MODE [ARGUMENT [FILE]]\n");
  return 94;
}
