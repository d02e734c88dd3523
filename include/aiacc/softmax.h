/* aiacc: the softmax cross entropy of a classifier whose classes are split over ranks, as those of face recognition are.
 *
 * With C classes, N rows of the joined batch and d features, a data-parallel classifier reduces gradients of C x d weights. Here
 * each rank has the weights of its classes only:
 *   1. gather the features and labels of all ranks (aiacc_allgatherv; batches may have different sizes);
 *   2. logits of the whole batch for the own classes (the caller's matrix product; for margins of normalised rows);
 *   3. aiacc_softmax_loss: the losses, and the gradient of the logits, with one allreduce of 3 N numbers;
 *   4. the gradient of the own weights (the caller's product, without communication), and that of the features, which
 *      aiacc_reduce_scatterv with AIACC_SUM brings to the owners of the rows.
 *
 * The conventions of aiacc.h hold.
 */
#ifndef AIACC_SOFTMAX_H
#define AIACC_SOFTMAX_H

#include <aiacc/aiacc.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AIACC_MARGIN_NONE 0 /* logits are taken as they are, times `scale` */
#define AIACC_MARGIN_ARC \
  1 /* of the row's class: cos(angle + margin); cos - margin sin(margin) if that angle is beyond pi */
#define AIACC_MARGIN_COS 2 /* of the row's class: cos - margin */

/* Zero all of it, set `size`. Equal on all ranks but for classes, first_class and ids. */
typedef struct aiacc_softmax_shard {
  size_t size;         /* sizeof(aiacc_softmax_shard_t) */
  size_t rows;         /* N, of all ranks */
  size_t all_classes;  /* C, of all ranks */
  size_t classes;      /* of this rank; may be 0 */
  int64_t first_class; /* the number of the first of them; the others follow */
  const int64_t
      *ids; /* NULL; or the numbers of all of them, ascending, in place of first_class (aiacc_softmax_sample) */
  aiacc_dtype_t dtype;   /* of the logits: AIACC_FLOAT32 or AIACC_FLOAT64 */
  int32_t margin_kind;   /* AIACC_MARGIN_; with a margin, logits are cosines */
  double margin;         /* radians for AIACC_MARGIN_ARC */
  double scale;          /* of the logits, after the margin; 0 means 1 */
  double gradient_scale; /* of the gradient; 0 means 1 / rows: of the mean loss */
} aiacc_softmax_shard_t;

/* losses[i] = the cross entropy of row i, equal on all ranks. `logits` (rows x classes, row by row) are replaced by the gradient
 * of the losses' mean in them, or of their sum times gradient_scale. labels[i] is the class of row i, equal on all ranks; a
 * label that is no class is refused on every rank. Exponentials are shifted by the maximum over all ranks. With sampled classes
 * (ids) the label's class must be among those of its rank: a row whose class no rank has gets an infinite loss. Collective.
 * Blocks. `attr` may be NULL; of its members, name, timeout_ms, priority and traffic_class count. */
AIACC_API aiacc_status_t aiacc_softmax_loss(const aiacc_softmax_shard_t *shard, void *logits, const int64_t *labels,
                                            double *losses, aiacc_group_t group, const aiacc_attr_t *attr);

/* The classes of this rank when `all_classes` are split: *first to *first + *classes - 1. The first all_classes mod n ranks have
 * one more. Local. */
AIACC_API aiacc_status_t aiacc_softmax_split(size_t all_classes, aiacc_group_t group, int64_t *first, size_t *classes);

/* The classes that a step uses (Partial FC): of the `classes` from `first_class` on, all that are among the `rows` labels, and
 * others at random until there are `wanted`; in ascending order to `ids`, which has room for `classes`. *n is how many. Equal
 * arguments give equal classes on every machine; another `seed` each step. Local. */
AIACC_API aiacc_status_t aiacc_softmax_sample(int64_t first_class, size_t classes, const int64_t *labels, size_t rows,
                                              size_t wanted, uint64_t seed, int64_t *ids, size_t *n);

#ifdef __cplusplus
}
#endif
#endif
