/* aiacc: batch normalisation over the batches of all ranks (SyncBN). Forward and backward of training, on the CPU.
 *
 * A batch normalisation layer of a data-parallel model sees 1/n of the batch on each rank. With SyncBN, mean and variance of
 * a channel are those of all ranks' elements of it, as if one rank had the whole batch; ranks may have different numbers of
 * samples, also none.
 *
 * - One allreduce forward: the ranks' (count, mean, variance) of each channel, merged in the order of ranks
 *   (Chan, Golub, LeVeque 1979), without a difference of squares; means travel with 40 bits, or as fp64 for fp64 batches. One allreduce backward: two
 *   sums of each channel. All ranks get the same bits.
 * - One handle serves all layers of a model. Its calls are made in the same order on all ranks, which the graph gives;
 *   nothing is negotiated. Calls of several threads take turns, in an order that is theirs to agree on.
 *
 * The conventions of aiacc.h hold. Errors in arguments change nothing. Any later error (a lost rank, another number of
 * channels on another rank, a deadline) ends the handle on all its ranks and no other group. Evaluation, with running
 * statistics, needs no other rank and is not here.
 */
#ifndef AIACC_SYNCBN_H
#define AIACC_SYNCBN_H

#include <aiacc/aiacc.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t aiacc_syncbn_t;

/* Attributes; NULL for defaults. Zero all of it, set `size`. */
typedef struct aiacc_syncbn_attr {
  size_t size;        /* sizeof(aiacc_syncbn_attr_t) */
  const char *name;   /* for messages; tells apart handles of one group; equal on all ranks; copied */
  int64_t timeout_ms; /* of a call, as in aiacc_attr_t */
} aiacc_syncbn_attr_t;

#define AIACC_CHANNELS_FIRST 0 /* NCHW */
#define AIACC_CHANNELS_LAST 1  /* NHWC */

/* A batch of this rank: samples x channels x positions elements without gaps. Zero all of it, set `size`. */
typedef struct aiacc_syncbn_batch {
  size_t size;         /* sizeof(aiacc_syncbn_batch_t) */
  size_t samples;      /* N; may be 0, and differ between ranks */
  size_t channels;     /* C; equal on all ranks */
  size_t positions;    /* H x W, 1 for a batch of vectors; may be 0, and differ between ranks */
  aiacc_dtype_t dtype; /* of x, y, dy and dx: AIACC_FLOAT32, AIACC_FLOAT64, AIACC_FLOAT16 or AIACC_BFLOAT16 */
  int32_t layout;      /* AIACC_CHANNELS_FIRST or AIACC_CHANNELS_LAST */
} aiacc_syncbn_batch_t;

#define AIACC_SYNCBN_TORCH \
  0 /* running = (1 - momentum) running + momentum new; the variance is unbiased: M2 / (n - 1) */
#define AIACC_SYNCBN_MXNET 1 /* running = momentum running + (1 - momentum) new; the variance is biased: M2 / n */

/* Parameters and running statistics of a layer. The arrays have a number for each channel, fp64 if the batch's elements are
 * AIACC_FLOAT64 and fp32 otherwise. Zero all of it, set `size`. */
typedef struct aiacc_syncbn_layer {
  size_t size;            /* sizeof(aiacc_syncbn_layer_t) */
  const void *weight;     /* NULL: 1 */
  const void *bias;       /* NULL: 0 */
  void *running_mean;     /* updated; NULL: not kept */
  void *running_variance; /* updated; NULL: not kept */
  double epsilon;         /* added to the variance; 0 or more */
  double momentum;        /* of the running statistics */
  int32_t convention;     /* AIACC_SYNCBN_TORCH or AIACC_SYNCBN_MXNET */
} aiacc_syncbn_layer_t;

/* Makes a handle over the ranks of `group`, with a group of its own. Called by every rank of the group; handles of one group
 * with equal names are made in the same order on each. Local: no message is sent. `attr` may be NULL. */
AIACC_API aiacc_status_t aiacc_syncbn_create(aiacc_group_t group, const aiacc_syncbn_attr_t *attr,
                                             aiacc_syncbn_t *syncbn);

/* y = (x - mean) / sqrt(variance + epsilon) * weight + bias, with mean and biased variance of each channel over all ranks.
 * Writes to `saved` what backward needs, 2 * channels + 1 numbers: the means, then 1 / sqrt(variance + epsilon) of each
 * channel, then the number of elements of a channel on all ranks. y may be x. If the batches of all ranks are empty, or with
 * AIACC_SYNCBN_TORCH have one element of a channel, every rank gets AIACC_ERR_INVALID_ARGUMENT, and y, `saved` and the running
 * statistics are as before. Collective. Blocks. */
AIACC_API aiacc_status_t aiacc_syncbn_forward(aiacc_syncbn_t syncbn, const aiacc_syncbn_batch_t *batch,
                                              const aiacc_syncbn_layer_t *layer, const void *x, void *y, double *saved);

/* The gradients of a call of aiacc_syncbn_forward with the same batch, x and weight (NULL: 1), from the gradient dy of y and
 * what that call saved. dx is that of x; it may be dy or x. dweight and dbias are this rank's parts of the gradients of weight
 * and bias, which are reduced with those of all other parameters. Each of the three may be NULL: not wanted. Collective.
 * Blocks. */
AIACC_API aiacc_status_t aiacc_syncbn_backward(aiacc_syncbn_t syncbn, const aiacc_syncbn_batch_t *batch,
                                               const void *weight, const double *saved, const void *x, const void *dy,
                                               void *dx, void *dweight, void *dbias);

/* This rank has no more batches. Waits until all ranks have called it, without a time-out. If another rank calls forward or
 * backward meanwhile, all get AIACC_ERR_MISMATCH when each has made one of these calls, and the handle is over. Collective.
 * Blocks. */
AIACC_API aiacc_status_t aiacc_syncbn_join(aiacc_syncbn_t syncbn);

/* Ends the handle on all ranks: calls that are inside of it, on any rank, return AIACC_ERR_ABORTED with `reason` (may be NULL), and so do
 * later ones. For a rank that goes on without the others after an error. Local; on any thread. */
AIACC_API aiacc_status_t aiacc_syncbn_abort(aiacc_syncbn_t syncbn, const char *reason);

/* Local; no call of the handle runs. aiacc_finalize frees the handles that are left. */
AIACC_API aiacc_status_t aiacc_syncbn_free(aiacc_syncbn_t syncbn);

#ifdef __cplusplus
}
#endif
#endif
