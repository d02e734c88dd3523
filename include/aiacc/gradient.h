/* aiacc: the gradient engine. Reduces the gradients of a model over the ranks of a group while the framework still computes.
 *
 * A collective is called in the same order on every rank. Gradients are not: each rank's framework finishes them in an order
 * of its own. An engine takes them as they come. It finds out which are ready on all ranks (negotiation), fuses small ones
 * and splits large ones, and runs allreduces of them, several at a time, on a group of its own.
 *
 * - A tensor has a name, equal on all ranks, and a slot in memory of the engine that the ranks of a host share. A framework
 *   that writes its gradients there (aiacc_gradient_memory) has them reduced in place; from its own memory they are copied
 *   into the slot and out of it, unless they are long and no host has two ranks (aiacc_gradient_in_place).
 * - A tensor may be a table (`row_elements`), as an embedding is. Each rank submits the rows that it has (aiacc_gradient_submit_rows),
 *   and gets the sum of those of all ranks (aiacc_gradient_rows). They travel as rows, or as a whole table if that moves fewer bytes.
 * - A step: submit each tensor once, as its gradient is ready; then aiacc_gradient_wait. Next step.
 * - After some equal steps the ranks have agreed on a schedule: the engine then reduces in its order without any message
 *   of negotiation, until a rank departs from it.
 *
 * The conventions of aiacc.h hold. An engine is used by any thread of its rank; its calls may be made from several.
 * "Local" calls send no message that another rank waits for. No call but aiacc_gradient_wait, aiacc_gradient_wait_for and
 * aiacc_gradient_join blocks for other ranks.
 *
 * Errors. What a call refuses by its arguments changes nothing. A later error (a lost rank, ranks that disagree about a
 * tensor, a deadline) ends the engine on all its ranks and no other group: submissions that are outstanding complete with
 * that error, and later calls return AIACC_ERR_ABORTED with its sentence.
 *
 * Gradients that are not finite. With AIACC_NAN_CHECK or `nan_check`, a sum or average that is not finite completes with
 * AIACC_ERR_NOT_FINITE on all ranks, and so does the aiacc_gradient_wait of its step; the sentence names the tensor and, where a
 * rank has submitted one that is not finite, this rank (aiacc_last_error_rank). All ranks therefore leave out the same step. The
 * engine goes on, and other tensors of the step are reduced. Without the check such a sum is what it is in IEEE arithmetic.
 */
#ifndef AIACC_GRADIENT_H
#define AIACC_GRADIENT_H

#include <aiacc/aiacc.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t aiacc_gradient_t;

/* In what the elements of a tensor travel. 16-bit elements are for sums and averages of AIACC_FLOAT32. They are summed in fp32 and
 * the result is rounded once more, so the error does not grow with the number of ranks; all ranks get equal bits. fp16 elements are
 * scaled by a power of two that follows from the tensor's last result. What is too large for it all the same, and the first
 * reduction of each tensor, travels in fp32: nothing overflows that would not in fp32. */
typedef enum aiacc_wire AIACC_ENUM_TYPE {
  AIACC_WIRE_DEFAULT = 0, /* a tensor: as the engine; an engine: AIACC_ALLREDUCE_DTYPE */
  AIACC_WIRE_FLOAT32 = 1, /* as they are */
  AIACC_WIRE_FLOAT16 = 2,
  AIACC_WIRE_BFLOAT16 = 3,
  /* Between hosts fp16, for tensors of at least 64 KiB, and else as they are. Each 4,096 elements that leave a host are scaled by a
   * power of two of their own, so nothing overflows that would not in fp32; each host's sum is in fp32. */
  AIACC_WIRE_MIXED = 4
} aiacc_wire_t;

/* Attributes of an engine; NULL for defaults. Zero all of it, set `size`. Equal on all ranks but for timeout_ms. */
typedef struct aiacc_gradient_attr {
  size_t size;            /* sizeof(aiacc_gradient_attr_t) */
  const char *name;       /* for messages; tells apart engines of one group; copied */
  size_t fusion_bytes;    /* tensors are merged up to so many bytes, and larger ones split; 0: AIACC_FUSION_BYTES */
  int32_t in_flight;      /* so many allreduces at a time, or more short ones; 0: AIACC_FUSION_STREAMS */
  int32_t schedule_steps; /* equal steps before a schedule is recorded; 0: AIACC_SCHEDULE_STEPS; -1: never */
  int64_t timeout_ms;     /* of its allreduces, as in aiacc_attr_t; and how long a tensor may wait for other ranks */
  aiacc_wire_t wire;      /* of tensors that name none; others than sums and averages of fp32 travel as they are */
  int32_t nan_check;      /* 1: looks for gradients that are not finite, -1: does not; 0: AIACC_NAN_CHECK */
  /* 1: looks for the best fusion_bytes, in_flight and algorithm, from these and the usual one on; -1: does not; 0: AIACC_TUNE */
  int32_t tune;
} aiacc_gradient_attr_t;

/* A tensor. Zero all of it, set `size`. Equal on all ranks. */
typedef struct aiacc_tensor {
  size_t size;         /* sizeof(aiacc_tensor_t) */
  const char *name;    /* not empty, at most 1,000 bytes, one tensor of the engine; copied */
  size_t count;        /* elements; may be 0 */
  aiacc_dtype_t dtype; /* any but AIACC_RECORD */
  aiacc_op_t op;       /* as for aiacc_allreduce, but none of aiacc_op_create */
  double prescale;     /* 0 means 1; as in aiacc_attr_t */
  double postscale;    /* 0 means 1 */
  aiacc_wire_t wire;   /* with a 16-bit one: dtype AIACC_FLOAT32 and op AIACC_SUM or AIACC_AVG */
  /* Of what all ranks have submitted and waits to be reduced, the highest comes first. May differ between ranks: then that of
   * the lowest rank that has added the tensor counts. */
  int32_t priority;
  /* Above 0: the tensor is a table of `count` rows with so many elements each, of which a rank submits some. It has no slot. Its
   * dtype is any number type, its op AIACC_SUM or AIACC_AVG, its wire AIACC_WIRE_DEFAULT or AIACC_WIRE_FLOAT32: as they are. */
  size_t row_elements;
} aiacc_tensor_t;

/* What an engine has done since it was made. Set `size`; members that a caller does not know are left out. */
typedef struct aiacc_gradient_stats {
  size_t size;                   /* sizeof(aiacc_gradient_stats_t) */
  uint64_t steps;                /* that ended with everything submitted reduced */
  uint64_t rounds;               /* of negotiation, in which all ranks took part */
  uint64_t negotiation_messages; /* that this rank sent to other hosts for them */
  uint64_t launches;             /* allreduces; of tables also an allgather or two */
  uint64_t tensors;              /* submissions that completed */
  uint64_t bytes;                /* of these */
  uint64_t packed_bytes;         /* of these, that were copied into a slot or out of it, and rows of tables */
  uint64_t breaks;               /* ends of a recorded schedule because a rank departed from it */
  int32_t scheduled;             /* 1: reduces by a recorded schedule at present */
  uint64_t wire_bytes;           /* of the submissions as they travelled, with mixed between hosts */
  uint64_t fusion_bytes;         /* at present; AIACC_TUNE changes it, */
  int32_t in_flight;             /* and this */
  int32_t tuning;                /* 0: no; 1: searches, or will with the first schedule; 2: has settled */
  uint64_t tune_steps;           /* that were trials */
  uint64_t tune_searches;        /* that have begun: another one after the time of a step has changed */
  const char *algorithm;         /* of long allreduces between hosts by AIACC_TUNE, never freed; NULL: the usual */
} aiacc_gradient_stats_t;

/* Makes an engine over the ranks of `group`, which may be used and freed as if there were none. Called by every rank of the
 * group; engines of one group with equal names are made in the same order on each. Local: no message is sent, and members
 * find each other with the first submissions. Starts the context's progress thread, because other ranks ask a rank that
 * computes what it has ready. `attr` may be NULL. */
AIACC_API aiacc_status_t aiacc_gradient_create(aiacc_group_t group, const aiacc_gradient_attr_t *attr,
                                               aiacc_gradient_t *engine);

/* Adds `n` tensors and sets indices[i] to the number by which calls of this rank name tensors[i]. Numbers of other ranks may
 * differ. A name that the engine has already gives the same number again; with other metadata than before it is
 * AIACC_ERR_INVALID_ARGUMENT, and none of the n is added. In the order in which backward is expected to finish them:
 * neighbours are fused. At any time; ranks need not add at the same time. Two ranks that give one name different metadata end
 * the engine with AIACC_ERR_MISMATCH, which names the tensor, the ranks and both values. Local. */
AIACC_API aiacc_status_t aiacc_gradient_add(aiacc_gradient_t engine, size_t n, const aiacc_tensor_t *tensors,
                                            uint32_t *indices);

/* Forgets tensors; none of them is outstanding. Their numbers become invalid. The memory of their slots stays the engine's
 * until it is freed. The name may be added again with the same metadata, and has the same number and memory then. Local. */
AIACC_API aiacc_status_t aiacc_gradient_remove(aiacc_gradient_t engine, size_t n, const uint32_t *indices);

/* Sets *memory to the tensor's slot: `count` elements, aligned to 64 bytes, zero at first, at the same place as long as the
 * tensor is there. The caller may write it except between a submission and its completion; afterwards the result is there
 * (NULL `out`). NULL for a tensor without elements, and for a table. Local. */
AIACC_API aiacc_status_t aiacc_gradient_memory(aiacc_gradient_t engine, uint32_t tensor, void **memory);

/* Sets *in_place to 1 if a submission of the tensor whose `in` and `out` are the same is reduced there, without a copy, and to 0 if
 * it is copied into its slot and out of it. The former holds of tensors of any type of 256 KiB and more, unless they have a 16-bit
 * wire, where no host has two ranks of the group and the engine does not look for gradients that are not finite (AIACC_NAN_CHECK,
 * nan_check). Local. */
AIACC_API aiacc_status_t aiacc_gradient_in_place(aiacc_gradient_t engine, uint32_t tensor, int *in_place);

/* The tensor is ready on this rank. `in`: where its elements are, copied before the call returns; NULL: in its slot.
 * `out`: where the result goes, written before the submission completes, and untouched after an error; NULL: it stays in the
 * slot. `in` and `out` may be the same, and then that memory belongs to the engine until the submission completes. Where
 * aiacc_gradient_in_place says 1 it is then read and written until that, the slot is not used, and after an error the memory's
 * contents are undefined. *request is for aiacc_wait, aiacc_test and their like; with a NULL `request`, aiacc_gradient_wait alone
 * tells of the end. A tensor that was submitted and is not reduced yet is AIACC_ERR_INVALID_STATE. Does not block. */
AIACC_API aiacc_status_t aiacc_gradient_submit(aiacc_gradient_t engine, uint32_t tensor, const void *in, void *out,
                                               aiacc_request_t *request);

/* The gradient of a table is ready on this rank: `count` rows, which may be 0. `rows[i]`, from 0 and below the table's number of rows, is
 * the number of the i-th one, whose row_elements elements are at `values` + i * row_elements. In any order; a row that comes several times
 * counts with the sum of these, in which 16-bit elements are added in fp32. Both arrays are copied before the call returns. Ranks may
 * submit different rows, or none, but each rank submits. *request and errors are as of aiacc_gradient_submit; a row that the table
 * does not have is AIACC_ERR_INVALID_ARGUMENT. Does not block for other ranks. */
AIACC_API aiacc_status_t aiacc_gradient_submit_rows(aiacc_gradient_t engine, uint32_t tensor, size_t count,
                                                    const int64_t *rows, const void *values, aiacc_request_t *request);

/* The result of the last submission of a table: *count rows, with ascending numbers at *rows and row_elements elements of each at
 * *values. These are the rows that some rank has submitted, with their sum, also if that is zero; an average is over all ranks, with
 * zeros of those that do not have the row. All ranks have equal bits; what travels as rows is added in the order of ranks. The memory
 * is the engine's, and the same until the tensor is submitted again or the engine is freed. No rows before the first submission and
 * after an error; AIACC_ERR_INVALID_STATE while the tensor is outstanding. Each of the places may be NULL. Local. */
AIACC_API aiacc_status_t aiacc_gradient_rows(aiacc_gradient_t engine, uint32_t tensor, size_t *count,
                                             const int64_t **rows, const void **values);

/* This rank submits no more for now: what is ready goes without waiting for more to fuse. Waiting for a request of the engine
 * has this effect too. Does not block. */
AIACC_API aiacc_status_t aiacc_gradient_flush(aiacc_gradient_t engine);

/* aiacc_gradient_flush, and then waits until all that this rank has submitted is reduced: the end of a step. Returns the first
 * error of these; AIACC_ERR_NOT_FINITE is told by the first wait after it. AIACC_OK at once if nothing is outstanding. Requests
 * stay for their own calls. */
AIACC_API aiacc_status_t aiacc_gradient_wait(aiacc_gradient_t engine);

/* Waits until what this rank has submitted of the tensor is reduced, at most `timeout_ms` (0 or more); AIACC_PENDING after that, which
 * changes nothing. Has the effect of aiacc_gradient_flush if it must wait. AIACC_OK at once if the tensor is not outstanding, whether or
 * not its result is finite, which aiacc_gradient_wait tells. A request of the submission stays for its own calls. For programs that do
 * something between waits, such as looking for signals. */
AIACC_API aiacc_status_t aiacc_gradient_wait_for(aiacc_gradient_t engine, uint32_t tensor, int64_t timeout_ms);

/* This rank has run out of data: until all ranks have joined it takes part with zeros in what others submit, as is right for
 * AIACC_SUM and AIACC_AVG. Waits until all ranks have joined, and sets *last_rank (may be NULL) to the one that joined last.
 * What this rank has submitted is reduced first; it submits nothing meanwhile. Called by all ranks, each at its time. */
AIACC_API aiacc_status_t aiacc_gradient_join(aiacc_gradient_t engine, int *last_rank);

/* Local. */
AIACC_API aiacc_status_t aiacc_gradient_get_stats(aiacc_gradient_t engine, aiacc_gradient_stats_t *stats);

/* The engine is gone, and its slots with it. Waits for allreduces that are running; submissions that were not launched complete
 * with AIACC_ERR_ABORTED. What all ranks have begun to reduce ends as ever, also on ranks that still wait for it; what they submit
 * later ends with AIACC_ERR_ABORTED. Waits up to 10 s for the other ranks to hear of it. aiacc_finalize frees the engines that
 * are left. */
AIACC_API aiacc_status_t aiacc_gradient_free(aiacc_gradient_t engine);

#ifdef __cplusplus
}
#endif
#endif
