/* Two ranks with many operations under way, of which rank 1 begins its own late:
 *   outstanding allreduce|messages COUNT LATE_MS
 * With messages it posts the receives, then computes for the delay, then posts the sends. Prints how many seconds this
 * took.
 *   outstanding mixed COUNT LATE_MS
 * The same with allreduces of several lengths, barriers, long ones and blocking ones among them, which are waited for from the last
 * to the first. */
#include <aiacc/aiacc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void check(aiacc_status_t status) {
  if (status == AIACC_OK) return;
  fprintf(stderr, "%s: %s\n", aiacc_status_name(status), aiacc_last_error());
  exit(1);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void compute(double seconds) {
  const double end = now() + seconds;
  while (now() < end) continue;
}

enum { LONG = 30000, MOST = 700 };

/* Lengths that wait as records, one of them in several packets, and one that is longer. */
static size_t length_of(size_t i) { return i % 50 == 49 ? LONG : i % 7 == 6 ? MOST : 1 + i % 5; }

static void run_mixed(int rank, size_t n, double late) {
  double** data = calloc(n, sizeof *data);
  aiacc_request_t* requests = calloc(n, sizeof *requests);
  if (data == NULL || requests == NULL) exit(3);
  if (rank == 1) compute(late);
  for (size_t i = 0; i < n; ++i) {
    data[i] = calloc(length_of(i), sizeof **data);
    if (data[i] == NULL) exit(3);
    for (size_t k = 0; k < length_of(i); ++k) data[i][k] = (double)(i + k);
    if (i % 11 == 10) {
      check(aiacc_barrier(AIACC_WORLD, NULL, &requests[i]));
      continue;
    }
    check(aiacc_allreduce(data[i], data[i], length_of(i), AIACC_FLOAT64, AIACC_SUM, AIACC_WORLD, NULL,
                          i % 301 == 300 ? NULL : &requests[i]));
  }
  for (size_t i = n; i-- > 0;) {
    if (requests[i] != AIACC_NULL) {
      aiacc_status_t status = AIACC_PENDING;
      while (i % 2 == 0 && status == AIACC_PENDING) status = aiacc_test(requests[i]);
      check(i % 2 == 0 ? status : aiacc_wait(requests[i]));
    }
    for (size_t k = 0; k < length_of(i); ++k) {
      if (data[i][k] == (i % 11 == 10 ? 1 : 2) * (double)(i + k)) continue;
      fprintf(stderr, "rank %d: element %zu of %zu is %g\n", rank, k, i, data[i][k]);
      exit(4);
    }
    free(data[i]);
  }
  free(requests);
  free(data);
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int messages = strcmp(argv[1], "messages") == 0;
  const size_t n = strtoul(argv[2], NULL, 10);
  const double late = strtod(argv[3], NULL) / 1000;
  int rank = -1;
  check(aiacc_init(NULL));
  check(aiacc_rank(AIACC_WORLD, &rank));
  if (strcmp(argv[1], "mixed") == 0) {
    run_mixed(rank, n, late);
    check(aiacc_finalize());
    return 0;
  }
  double* out = calloc(n, sizeof *out);
  double* in = calloc(n, sizeof *in);
  aiacc_request_t* requests = calloc(2 * n, sizeof *requests);
  if (out == NULL || in == NULL || requests == NULL) return 3;
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL));
  const double began = now();
  for (size_t i = 0; messages && i < n; ++i) {
    check(aiacc_recv(&in[i], 1, AIACC_FLOAT64, 1 - rank, (int)i, AIACC_WORLD, NULL, &requests[n + i]));
  }
  if (messages || rank == 1) compute(late);
  for (size_t i = 0; i < n; ++i) {
    out[i] = (double)i;
    check(messages ? aiacc_send(&out[i], 1, AIACC_FLOAT64, 1 - rank, (int)i, AIACC_WORLD, NULL, &requests[i])
                   : aiacc_allreduce(&out[i], &in[i], 1, AIACC_FLOAT64, AIACC_SUM, AIACC_WORLD, NULL, &requests[i]));
  }
  check(aiacc_wait_all(2 * n, requests, AIACC_FOREVER));
  for (size_t i = 0; i < n; ++i) {
    if (in[i] == (messages ? 1 : 2) * (double)i) continue;
    fprintf(stderr, "rank %d: %zu is %g\n", rank, i, in[i]);
    return 4;
  }
  printf("%.3f\n", now() - began);
  check(aiacc_finalize());
  return 0;
}
