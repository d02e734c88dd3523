/* A rank for process tests of groups: groups MODE. Says on standard error what failed and exits with the status's number
 * plus 100. */
#include <aiacc/aiacc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank = -1, size = -1;

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

static void sum_is(aiacc_group_t group, size_t count, long value, long expected) {
  int64_t* data = calloc(count, sizeof *data);
  if (data == NULL) exit(98);
  for (size_t i = 0; i < count; ++i) data[i] = value;
  check(aiacc_allreduce(data, data, count, AIACC_INT64, AIACC_SUM, group, NULL, NULL), "allreduce");
  for (size_t i = 0; i < count; ++i) require(data[i] == expected, "the sum");
  free(data);
}

static aiacc_group_t group_of(size_t n, const int* ranks, const char* name) {
  aiacc_group_attr_t attr = {0};
  attr.size = sizeof attr;
  attr.name = name;
  aiacc_group_t group = AIACC_NULL;
  check(aiacc_group_create(AIACC_WORLD, n, ranks, &attr, &group), "create");
  return group;
}

/* Every pair of ranks, the world backwards, odd and even, and a mesh, all at once; then freed. */
static int all_sorts(void) {
  aiacc_group_t pairs[16];
  for (int other = 0; other < size; ++other) {
    const int two[2] = {rank < other ? rank : other, rank < other ? other : rank};
    pairs[other] = rank == other ? group_of(1, &rank, "one") : group_of(2, two, "pair");
  }
  int backwards[16];
  for (int i = 0; i < size; ++i) backwards[i] = size - 1 - i;
  const aiacc_group_t world = group_of((size_t)size, backwards, "backwards");
  aiacc_group_t parity = AIACC_NULL;
  check(aiacc_group_split(AIACC_WORLD, rank % 2, 0, NULL, &parity), "split");
  for (size_t count = 1; count < 400000; count = count * 19 + 1) {
    for (int other = 0; other < size; ++other) {
      /* pairs call in the order of the sum of their ranks, so that no cycle of waits arises */
      const int partner = (other - rank + 2 * size) % size;
      sum_is(pairs[partner], count, rank, partner == rank ? rank : rank + partner);
    }
    sum_is(world, count, 1, size);
    sum_is(parity, count, rank, rank % 2 == 0 ? ((size + 1) / 2) * ((size + 1) / 2 - 1) : (size / 2) * (size / 2));
  }
  int from[16];
  check(aiacc_allgather(&rank, from, 1, AIACC_INT32, world, NULL, NULL), "allgather");
  for (int i = 0; i < size; ++i) require(from[i] == size - 1 - i, "order of the members");
  const char* const names[2] = {"outer", "inner"};
  const int inner = size % 2 == 0 ? 2 : 1;
  const int sizes[2] = {size / inner, inner};
  aiacc_mesh_t mesh = AIACC_NULL;
  check(aiacc_mesh_create(AIACC_WORLD, 2, names, sizes, &mesh), "mesh");
  aiacc_group_t row = AIACC_NULL, column = AIACC_NULL;
  check(aiacc_mesh_group(mesh, 1, names + 1, &row), "row");
  check(aiacc_mesh_group(mesh, 1, names, &column), "column");
  sum_is(row, 1000, 1, inner);
  sum_is(column, 100000, 1, size / inner);
  check(aiacc_mesh_free(mesh), "mesh_free");
  check(aiacc_group_free(parity), "free");
  check(aiacc_group_free(world), "free");
  return 0; /* the pairs are freed with the context */
}

/* One group is aborted, one has a mismatch; the others go on. */
static int errors(void) {
  int all[16];
  for (int i = 0; i < size; ++i) all[i] = i;
  const aiacc_group_t doomed = group_of((size_t)size, all, "doomed");
  const aiacc_group_t wrong = group_of((size_t)size, all, "wrong");
  const aiacc_group_t good = group_of((size_t)size, all, "good");
  sum_is(doomed, 10, 1, size);
  sum_is(AIACC_WORLD, 1, 1, size); /* all have left the sum */
  if (rank == size - 1) check(aiacc_group_abort(doomed, "enough is enough"), "abort");
  float data[2000] = {0};
  aiacc_status_t status = AIACC_OK;
  while (status == AIACC_OK) /* a member that has not learned of it yet may finish a small call */
    status = aiacc_allreduce(data, data, 2000, AIACC_FLOAT32, AIACC_SUM, doomed, NULL, NULL);
  require(status == AIACC_ERR_ABORTED && strstr(aiacc_last_error(), "enough is enough") != NULL, "the reason");
  require(aiacc_last_error_rank() == size - 1, "who aborted");
  status = aiacc_allreduce(data, data, rank == 0 ? 7 : 8, AIACC_FLOAT32, AIACC_SUM, wrong, NULL, NULL);
  require(status == AIACC_ERR_MISMATCH, "a mismatch");
  sum_is(good, 100000, rank, (long)size * (size - 1) / 2);
  sum_is(AIACC_WORLD, 1, 1, size);
  return 0;
}

/* Creates and frees many groups. */
static int cycles(void) {
  int all[16];
  for (int i = 0; i < size; ++i) all[i] = i;
  for (int i = 0; i < 1000; ++i) {
    const aiacc_group_t group = group_of((size_t)size, all, "short");
    if (i % 20 == 0) sum_is(group, i % 40 == 0 ? 3 : 30000, i, (long)i * size);
    check(aiacc_group_free(group), "free");
  }
  return 0;
}

/* Rank 1 dies; groups without it go on. */
static int death(void) {
  signal(SIGTERM, SIG_IGN); /* the launcher ends the others at once; here they report their error first */
  int others[16];
  int n = 0;
  for (int i = 0; i < size; ++i) {
    if (i != 1) others[n++] = i;
  }
  const aiacc_group_t rest = rank == 1 ? AIACC_NULL : group_of((size_t)n, others, "rest");
  int all[16];
  for (int i = 0; i < size; ++i) all[i] = size - 1 - i;
  const aiacc_group_t with = group_of((size_t)size, all, "with the dead");
  sum_is(with, 10, 1, size);
  char has_left = 1;
  for (int i = 0; rank == 1 && i < n; ++i)
    check(aiacc_recv(&has_left, 1, AIACC_INT8, others[i], 0, AIACC_WORLD, NULL, NULL), "recv");
  if (rank == 1) _exit(3);
  check(aiacc_send(&has_left, 1, AIACC_INT8, 1, 0, AIACC_WORLD, NULL, NULL), "send");
  aiacc_status_t status = AIACC_OK;
  while (status == AIACC_OK) status = aiacc_barrier(with, NULL, NULL);
  require(status == AIACC_ERR_PEER_FAILED && aiacc_last_error_rank() == size - 2, "its rank in the group");
  fprintf(stderr, "survivor %d: %s\n", rank, aiacc_last_error());
  sum_is(rest, 50000, 1, n);
  const aiacc_group_t late = group_of((size_t)size, all, "late");
  require(aiacc_barrier(late, NULL, NULL) == AIACC_ERR_PEER_FAILED, "a group with a dead member");
  return 0;
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    int (*run)(void);
  } modes[] = {{"sorts", all_sorts}, {"errors", errors}, {"cycles", cycles}, {"death", death}};
  for (size_t i = 0; argc > 1 && i < sizeof modes / sizeof *modes; ++i) {
    if (strcmp(argv[1], modes[i].name) != 0) continue;
    check(aiacc_init(NULL), "init");
    check(aiacc_rank(AIACC_WORLD, &rank), "rank");
    check(aiacc_size(AIACC_WORLD, &size), "size");
    const int failed = modes[i].run();
    check(aiacc_finalize(), "finalize");
    return failed;
  }
  fprintf(stderr, "usage: groups sorts|errors|cycles|death\n");
  return 94;
}
