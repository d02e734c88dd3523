/* A rank for process tests of the sharded softmax: softmax. Says on standard error what failed, and exits with another code than
 * 0. */
#include <aiacc/softmax.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 50, CLASSES = 37 };
static int rank = -1;

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

/* Some rows have logits of 10,000. */
static double logit_of(size_t row, size_t c) {
  return (double)((row * 7919 + c * 104729) % 1009) / 100 * (row % 5 == 0 ? 1000 : 1);
}

int main(void) {
  check(aiacc_init(NULL), "init");
  check(aiacc_rank(AIACC_WORLD, &rank), "rank");
  for (int step = 0; step < 30; ++step) {
    aiacc_softmax_shard_t shard = {0};
    shard.size = sizeof shard;
    shard.rows = ROWS;
    shard.all_classes = CLASSES;
    shard.dtype = AIACC_FLOAT64;
    check(aiacc_softmax_split(CLASSES, AIACC_WORLD, &shard.first_class, &shard.classes), "split");
    double *logits = malloc((ROWS * shard.classes + 1) * sizeof *logits), losses[ROWS], least[ROWS], most[ROWS];
    int64_t labels[ROWS];
    for (size_t row = 0; row < ROWS; ++row) {
      labels[row] = (int64_t)((row * 31 + (size_t)step) % CLASSES);
      for (size_t c = 0; c < shard.classes; ++c)
        logits[row * shard.classes + c] = logit_of(row, (size_t)shard.first_class + c);
    }
    check(aiacc_softmax_loss(&shard, logits, labels, losses, AIACC_WORLD, NULL), "loss");
    for (size_t row = 0; row < ROWS; ++row) {
      double top = logit_of(row, 0), sum = 0;
      for (size_t c = 1; c < CLASSES; ++c) top = fmax(top, logit_of(row, c));
      for (size_t c = 0; c < CLASSES; ++c) sum += exp(logit_of(row, c) - top);
      const double loss = log(sum) + top - logit_of(row, (size_t)labels[row]);
      require(fabs(losses[row] - loss) <= 1e-12 * (1 + loss), "the loss is that of one process");
      for (size_t c = 0; c < shard.classes; ++c) {
        const size_t number = (size_t)shard.first_class + c;
        const double gradient = (exp(logit_of(row, number) - top) / sum - (number == (size_t)labels[row])) / ROWS;
        require(fabs(logits[row * shard.classes + c] - gradient) <= 1e-12, "the gradient is that of one process");
      }
    }
    check(aiacc_allreduce(losses, least, ROWS, AIACC_FLOAT64, AIACC_MIN, AIACC_WORLD, NULL, NULL), "min");
    check(aiacc_allreduce(losses, most, ROWS, AIACC_FLOAT64, AIACC_MAX, AIACC_WORLD, NULL, NULL), "max");
    for (int row = 0; row < ROWS; ++row) require(least[row] == most[row], "ranks have the same bits");
    free(logits);
  }
  check(aiacc_finalize(), "finalize");
  return 0;
}
