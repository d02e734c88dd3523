/* Ranks whose calls differ, each case in a group of its own: every rank must get an error that names both calls, and
 * continue. Prints a deviation on standard error and exits with 99. A mismatch that is not detected ends by its time-out,
 * which is a failure. The argument is the time in which two ranks that wait for each other hear of that, in milliseconds. */
#include <aiacc/aiacc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kSmall = 10, kLarge = 100000 };
static int rank = -1, size = -1;
static float *send, *recv; /* kLarge elements for each rank */

static aiacc_attr_t attr_within(int64_t timeout_ms) {
  aiacc_attr_t attr = {0};
  attr.size = sizeof attr;
  attr.timeout_ms = timeout_ms;
  return attr;
}

static void fail(const char* name, aiacc_status_t status, const char* wanted) {
  fprintf(stderr, "rank %d, %s: %s: '%s', not %s\n", rank, name, aiacc_status_name(status), aiacc_last_error(), wanted);
  exit(99);
}

static aiacc_group_t group_of(size_t n, const int* ranks) {
  aiacc_group_t group = AIACC_NULL;
  const aiacc_status_t status = aiacc_group_create(AIACC_WORLD, n, ranks, NULL, &group);
  if (status != AIACC_OK) fail("a group", status, "made");
  return group;
}

/* The odd rank calls one thing and all others another. */
struct disagreement {
  const char* name;
  aiacc_status_t (*call)(int odd, aiacc_group_t group, const aiacc_attr_t* attr);
  const char* words[2]; /* of every rank's sentence */
};

static aiacc_status_t counts(int odd, aiacc_group_t group, const aiacc_attr_t* attr) {
  return aiacc_allreduce(send, recv, odd ? 20 : 10, AIACC_FLOAT32, AIACC_SUM, group, attr, NULL);
}
static aiacc_status_t large_counts(int odd, aiacc_group_t group, const aiacc_attr_t* attr) {
  return aiacc_allreduce(send, recv, kLarge - odd, AIACC_FLOAT32, AIACC_SUM, group, attr, NULL);
}
static aiacc_status_t types(int odd, aiacc_group_t group, const aiacc_attr_t* attr) {
  return aiacc_allgather(send, recv, kSmall, odd ? AIACC_INT32 : AIACC_FLOAT32, group, attr, NULL);
}
static aiacc_status_t operators(int odd, aiacc_group_t group, const aiacc_attr_t* attr) {
  return aiacc_allreduce(send, recv, kLarge, AIACC_FLOAT32, odd ? AIACC_MAX : AIACC_SUM, group, attr, NULL);
}
static aiacc_status_t operations(int odd, aiacc_group_t group, const aiacc_attr_t* attr) {
  return odd ? aiacc_barrier(group, attr, NULL) : aiacc_alltoall(send, recv, kSmall, AIACC_FLOAT32, group, attr, NULL);
}
static aiacc_status_t order(int odd, aiacc_group_t group, const aiacc_attr_t* attr) {
  aiacc_status_t status = AIACC_OK;
  for (int turn = 0; turn < 2 && status == AIACC_OK; ++turn) {
    status = (turn == 0) == (odd != 0) ? aiacc_barrier(group, attr, NULL)
                                       : aiacc_allreduce(send, recv, 3, AIACC_FLOAT32, AIACC_SUM, group, attr, NULL);
  }
  return status;
}
static aiacc_status_t roots(int odd, aiacc_group_t group, const aiacc_attr_t* attr) {
  return aiacc_broadcast(send, kLarge, AIACC_FLOAT32, odd ? 0 : 1, group, attr, NULL);
}
static aiacc_status_t roots_of_reduce(int odd, aiacc_group_t group, const aiacc_attr_t* attr) {
  return aiacc_reduce(send, recv, kSmall, AIACC_FLOAT32, AIACC_SUM, odd ? 0 : 1, group, attr, NULL);
}
static aiacc_status_t nobody_sends(int odd, aiacc_group_t group, const aiacc_attr_t* attr) {
  return odd ? aiacc_broadcast(recv, kSmall, AIACC_FLOAT32, 0, group, attr, NULL)
             : aiacc_scatter(send, recv, kSmall, AIACC_FLOAT32, 1, group, attr, NULL);
}

static const struct disagreement cases[] = {
    {"counts", counts, {"allreduce of 10 fp32", "allreduce of 20 fp32"}},
    {"large counts", large_counts, {"allreduce of 100000 fp32", "allreduce of 99999 fp32"}},
    {"types", types, {"allgather of 10 fp32", "allgather of 10 int32"}},
    {"operators", operators, {"fp32, sum", "fp32, max"}},
    {"operations", operations, {"alltoall of 10", "barrier"}},
    {"order", order, {"barrier", "allreduce of 3"}},
    {"roots", roots, {"from root 0", "from root 1"}},
    {"roots of reduce", roots_of_reduce, {"to root 0", "to root 1"}},
    {"nobody sends", nobody_sends, {"broadcast of 10", "scatter of 10"}},
};

/* A rank that finishes before the mismatch is detected gets the error from one of its next calls. */
static void disagree(const struct disagreement* one, aiacc_group_t group) {
  const aiacc_attr_t attr = attr_within(30000);
  aiacc_status_t status = one->call(rank == 1, group, &attr);
  for (int more = 0; status == AIACC_OK && more < 10000; ++more) status = aiacc_barrier(group, &attr, NULL);
  if (status != AIACC_ERR_MISMATCH) fail(one->name, status, "a mismatch");
  for (int i = 0; i < 2; ++i) {
    if (strstr(aiacc_last_error(), one->words[i]) == NULL) fail(one->name, status, one->words[i]);
  }
}

/* The first and the last rank both receive from the other. */
static void receive_from_each_other(int timeout_ms) {
  const int ends[2] = {0, size - 1};
  if (rank != 0 && rank != size - 1) return;
  const aiacc_group_t pair = group_of(2, ends);
  const int me = rank == 0 ? 0 : 1;
  aiacc_status_t status = aiacc_barrier(pair, NULL, NULL);
  if (status != AIACC_OK) fail("a barrier of receivers", status, "ok");
  const aiacc_attr_t attr = attr_within(timeout_ms);
  status = aiacc_recv(recv, kSmall, AIACC_FLOAT32, 1 - me, 4, pair, &attr, NULL);
  if (status != AIACC_ERR_TIMEOUT) fail("receivers", status, "a time-out");
  for (int i = 0; i < 2; ++i) {
    char words[80];
    snprintf(words, sizeof words, "rank %d called recv of 10 fp32 from rank %d, tag 4", i, 1 - i);
    if (strstr(aiacc_last_error(), words) == NULL) fail("receivers", status, words);
  }
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  aiacc_status_t status = aiacc_init(NULL);
  if (status != AIACC_OK) fail("init", status, "ok");
  aiacc_rank(AIACC_WORLD, &rank);
  aiacc_size(AIACC_WORLD, &size);
  send = calloc((size_t)size * kLarge, sizeof *send);
  recv = calloc((size_t)size * kLarge, sizeof *recv);
  int* all = calloc((size_t)size, sizeof *all);
  if (send == NULL || recv == NULL || all == NULL) return 98;
  for (int i = 0; i < size; ++i) all[i] = i;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) disagree(&cases[i], group_of((size_t)size, all));
  receive_from_each_other(atoi(argv[1]));
  float one = 1;
  status = aiacc_allreduce(&one, &one, 1, AIACC_FLOAT32, AIACC_SUM, AIACC_WORLD, NULL, NULL);
  if (status != AIACC_OK || one != (float)size) fail("the world", status, "left alone");
  status = aiacc_finalize();
  if (status != AIACC_OK) fail("finalize", status, "ok");
  free(send);
  free(recv);
  free(all);
  return 0;
}
