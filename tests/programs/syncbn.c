/* A rank for process tests of SyncBN: syncbn MODE. Says on standard error what failed and exits with the status's number plus
 * 100. */
#define _DEFAULT_SOURCE
#include <aiacc/syncbn.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 5, POSITIONS = 6 };
static const size_t channels_of[LAYERS] = {3, 64, 1, 300, 40};
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

static aiacc_syncbn_t made(const char* name) {
  aiacc_syncbn_attr_t attr = {0};
  attr.size = sizeof attr;
  attr.name = name;
  aiacc_syncbn_t syncbn = AIACC_NULL;
  check(aiacc_syncbn_create(AIACC_WORLD, &attr, &syncbn), "create");
  return syncbn;
}

static aiacc_syncbn_batch_t batch_of(size_t samples, size_t channels, int32_t layout) {
  aiacc_syncbn_batch_t batch = {0};
  batch.size = sizeof batch;
  batch.samples = samples;
  batch.channels = channels;
  batch.positions = POSITIONS;
  batch.dtype = AIACC_FLOAT32;
  batch.layout = layout;
  return batch;
}

static aiacc_syncbn_layer_t layer_of(void) {
  aiacc_syncbn_layer_t layer = {0};
  layer.size = sizeof layer;
  layer.epsilon = 1e-5;
  layer.momentum = 0.1;
  return layer;
}

/* The last rank of several has no sample. */
static size_t samples_of(int of) { return size > 1 && of == size - 1 ? 0 : 2 + (size_t)(of % 3); }

/* Every rank knows every rank's elements: about 10,000 deviations from 0. */
static float x_of(int of, size_t i) { return 1e4F + (float)((unsigned)(i * 7919 + (size_t)of * 104729) % 1009) / 300; }
static float dy_of(int of, size_t i) { return (float)((unsigned)(i * 6007 + (size_t)of * 7) % 101) / 50 - 1; }

static size_t channel_of(size_t element, size_t channels, int32_t layout) {
  return layout == AIACC_CHANNELS_LAST ? element % channels : element / POSITIONS % channels;
}

static int near_to(double have, double want, double scale) { return fabs(have - want) <= 1e-6 * (fabs(want) + scale); }

/* One layer against the sums over all ranks' elements. Adds what all ranks must have with equal bits to `digest`. */
static void run_layer(aiacc_syncbn_t syncbn, size_t channels, int32_t layout, double* digest) {
  const size_t row = channels * POSITIONS, own = samples_of(rank) * row;
  float *x = malloc((own + 1) * sizeof *x), *y = malloc((own + 1) * sizeof *y), *dy = malloc((own + 1) * sizeof *dy);
  float *dweight = malloc(channels * sizeof *dweight), *dbias = malloc(channels * sizeof *dbias);
  float *mean_was = calloc(channels, sizeof *mean_was), *variance_was = calloc(channels, sizeof *variance_was);
  double *saved = malloc((2 * channels + 1) * sizeof *saved), *sums = calloc(4 * channels, sizeof *sums);
  for (size_t i = 0; i < own; ++i) {
    x[i] = x_of(rank, i);
    dy[i] = dy_of(rank, i);
  }
  double *mean = sums, *square = sums + channels, *sum = square + channels, *product = sum + channels, count = 0;
  for (int of = 0; of < size; ++of) count += (double)(samples_of(of) * POSITIONS);
  for (int pass = 0; pass < 3; ++pass) {
    for (int of = 0; of < size; ++of) {
      for (size_t i = 0; i < samples_of(of) * row; ++i) {
        const size_t c = channel_of(i, channels, layout);
        const double off = x_of(of, i) - mean[c];
        if (pass == 0) mean[c] += (double)x_of(of, i) / count;
        if (pass == 1) square[c] += off * off;
        if (pass == 2) sum[c] += dy_of(of, i);
        if (pass == 2) product[c] += dy_of(of, i) * off;
      }
    }
  }
  aiacc_syncbn_batch_t batch = batch_of(samples_of(rank), channels, layout);
  aiacc_syncbn_layer_t layer = layer_of();
  layer.running_mean = mean_was;
  layer.running_variance = variance_was;
  check(aiacc_syncbn_forward(syncbn, &batch, &layer, x, y, saved), "forward");
  check(aiacc_syncbn_backward(syncbn, &batch, NULL, saved, x, dy, dy, dweight, dbias), "backward");
  require(saved[2 * channels] == count, "the count is that of all ranks");
  for (size_t c = 0; c < channels; ++c) {
    require(near_to(mean_was[c], 0.1 * mean[c], 0), "the running mean follows");
    require(near_to(variance_was[c], 0.1 * square[c] / (count - 1), 0), "the running variance follows");
  }
  for (size_t i = 0; i < own; ++i) {
    const size_t c = channel_of(i, channels, layout);
    const double scale = 1 / sqrt(square[c] / count + 1e-5), off = x_of(rank, i) - mean[c];
    require(near_to(y[i], off * scale, 1), "y is normalised");
    const double dx = scale * (dy_of(rank, i) - sum[c] / count - off * scale * scale * product[c] / count);
    require(near_to(dy[i], dx, 1), "dx is the gradient");
  }
  for (size_t i = 0; i < 2 * channels + 1; ++i) digest[i % 8] += saved[i] * (double)(i + 1);
  free(x), free(y), free(dy), free(dweight), free(dbias), free(mean_was), free(variance_was), free(saved), free(sums);
}

static void steps(void) {
  const aiacc_syncbn_t syncbn = made("steps");
  double digest[8] = {0}, least[8], most[8];
  for (int step = 0; step < 20; ++step) {
    for (int l = 0; l < LAYERS; ++l) run_layer(syncbn, channels_of[l], (step + l) % 2, digest);
  }
  check(aiacc_allreduce(digest, least, 8, AIACC_FLOAT64, AIACC_MIN, AIACC_WORLD, NULL, NULL), "min");
  check(aiacc_allreduce(digest, most, 8, AIACC_FLOAT64, AIACC_MAX, AIACC_WORLD, NULL, NULL), "max");
  require(memcmp(least, most, sizeof least) == 0, "ranks have the same bits");
  check(aiacc_syncbn_free(syncbn), "free");
}

/* Forward of 10 channels, or on rank 1 of 12. Says the sentence. */
static void other_channels(void) {
  const aiacc_syncbn_t syncbn = made("layers");
  const aiacc_syncbn_batch_t batch = batch_of(1, rank == 1 ? 12 : 10, AIACC_CHANNELS_FIRST);
  const aiacc_syncbn_layer_t layer = layer_of();
  float x[12 * POSITIONS] = {0};
  double saved[25];
  const aiacc_status_t status = aiacc_syncbn_forward(syncbn, &batch, &layer, x, x, saved);
  fprintf(stderr, "rank %d: forward: %s: %s\n", rank, aiacc_status_name(status), aiacc_last_error());
  require(status == AIACC_ERR_MISMATCH, "a mismatch");
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier");
}

/* All ranks run out of batches together, and then rank 1 before the others. Says the sentence. */
static void join(void) {
  const aiacc_syncbn_t syncbn = made("layers");
  const aiacc_syncbn_batch_t batch = batch_of(1, 3, AIACC_CHANNELS_FIRST);
  const aiacc_syncbn_layer_t layer = layer_of();
  float x[3 * POSITIONS] = {0};
  double saved[7];
  for (int epoch = 0; epoch < 3; ++epoch) {
    check(aiacc_syncbn_forward(syncbn, &batch, &layer, x, x, saved), "forward");
    check(aiacc_syncbn_join(syncbn), "join");
  }
  const aiacc_status_t status =
      rank == 1 ? aiacc_syncbn_join(syncbn) : aiacc_syncbn_forward(syncbn, &batch, &layer, x, x, saved);
  fprintf(stderr, "rank %d: out of batches: %s: %s\n", rank, aiacc_status_name(status), aiacc_last_error());
  require(status == AIACC_ERR_MISMATCH, "a mismatch");
  check(aiacc_barrier(AIACC_WORLD, NULL, NULL), "barrier");
}

/* Rank 1 dies; aiaccrun lets the others end by themselves. */
static void death(void) {
  signal(SIGTERM, SIG_IGN);
  const aiacc_syncbn_t syncbn = made("layers");
  const aiacc_syncbn_batch_t batch = batch_of(1, 64, AIACC_CHANNELS_FIRST);
  const aiacc_syncbn_layer_t layer = layer_of();
  static float x[64 * POSITIONS];
  double saved[129];
  aiacc_status_t status = AIACC_OK;
  for (int call = 0; status == AIACC_OK; ++call) {
    if (rank == 1 && call == 3) raise(SIGKILL);
    status = aiacc_syncbn_forward(syncbn, &batch, &layer, x, x, saved);
  }
  fprintf(stderr, "rank %d: survivor: %s: %s\n", rank, aiacc_status_name(status), aiacc_last_error());
  require(status == AIACC_ERR_PEER_FAILED, "a lost rank");
}

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "";
  check(aiacc_init(NULL), "init");
  check(aiacc_rank(AIACC_WORLD, &rank), "rank");
  check(aiacc_size(AIACC_WORLD, &size), "size");
  if (strcmp(mode, "steps") == 0) steps();
  if (strcmp(mode, "channels") == 0) other_channels();
  if (strcmp(mode, "join") == 0) join();
  if (strcmp(mode, "death") == 0) death();
  check(aiacc_finalize(), "finalize");
  return 0;
}
