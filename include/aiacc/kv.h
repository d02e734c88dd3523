/* aiacc: the key-value store: values that ranks push gradients to and pull, on servers that are ranks too, as in MXNet.
 *
 * A value has a key, a type, and `rows` of `row_elements` each; a dense value of n elements has n rows of one. Each worker
 * initialises each key (aiacc_kv_init) before it uses it. A small value is on one server, which the key's hash chooses; one of
 * more than `split_elements` is spread over all servers. A helper thread serves, so a rank may compute meanwhile.
 *
 *   AIACC_KV_SYNC     pushes of all workers to a key are one round: the server sums their k-th pushes, in the order of ranks, and
 *                     runs its updater once. A pull sees the value after as many rounds as this worker has pushed. The sum's
 *                     bits do not depend on who is early. A round of at least 256 KiB, in which all workers call
 *                     aiacc_kv_pushpull with AIACC_KV_WIRE_PLAIN while all updaters are AIACC_KV_ASSIGN, is an allreduce of the
 *                     workers, whose order of operands depends on the size and on where ranks are.
 *   AIACC_KV_ASYNC    each push is applied at once; a pull sees the value as it is.
 *   AIACC_KV_BOUNDED  as ASYNC, but nobody gets further than `staleness` pushes of a key ahead of the slowest worker: its calls
 *                     end when the others have caught up.
 *
 * Operations of one rank on one key take effect in the order of the calls, without waiting in between. Those on different keys may
 * overtake each other: of what waits to be sent, the higher `priority` of the attributes goes first.
 *
 * Requests. With a NULL `request` a call blocks. Otherwise *request is for aiacc_wait and its like, and the call's memory is the
 * store's until then. Of `attr`, which may be NULL, timeout_ms and priority count; a traffic class is the store's.
 *
 * Replicas. With `replicas` = 2 the next server in the order has a copy of each value: a call ends when both have its effect. When
 * a server is lost, the next one goes on with what it had, all that was acknowledged; calls under way continue there, and a push
 * takes effect once. The values concerned have one replica then, and are copied to the next server that is left while calls go on;
 * both is logged. What loses its second server before it was copied is lost, as with one server without replicas. A lost worker still ends AIACC_KV_SYNC, so let other ranks serve there. No round is an allreduce.
 *
 * Errors. A lost server or worker is named (aiacc_last_error_rank): what needs it fails with AIACC_ERR_PEER_FAILED, and the store
 * goes on with other keys and, if not AIACC_KV_SYNC, with other workers. A push that ends by its deadline leaves its key
 * unusable on this rank, because some servers may have taken it and others not; from an allreduce, on all workers, and with it the
 * other keys whose allreduces are under way.
 *
 * The conventions of aiacc.h hold.
 */
#ifndef AIACC_KV_H
#define AIACC_KV_H

#include <aiacc/aiacc.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t aiacc_kv_t;

#define AIACC_KV_SYNC 0
#define AIACC_KV_ASYNC 1
#define AIACC_KV_BOUNDED 2

/* In what pushed elements of AIACC_FLOAT32 travel; answers travel as they are. */
#define AIACC_KV_WIRE_PLAIN 0
#define AIACC_KV_WIRE_FLOAT16 1
#define AIACC_KV_WIRE_BFLOAT16 2
#define AIACC_KV_WIRE_2BIT \
  3 /* MXNet's: +threshold, 0 or -threshold; the rest is added to the next push. Dense pushes only */

#define AIACC_KV_ASSIGN 0 /* the value becomes what is pushed: in AIACC_KV_SYNC the sum of all workers */
#define AIACC_KV_SUM 1    /* what is pushed is added to the value */
#define AIACC_KV_SGD 2    /* with momentum if that is not 0. Of fp32 and fp64, as AIACC_KV_ADAM */
#define AIACC_KV_ADAM 3
#define AIACC_KV_CALLBACK 4

/* An integer or a string: number 7 and name "7" are two keys. */
typedef struct aiacc_kv_key {
  const char *name; /* at most 1,000 bytes; NULL: the key is `number` */
  int64_t number;
} aiacc_kv_key_t;

/* Changes `value`, `count` elements of the key's from number `first` on, by `gradient`. Called on a server, by the thread that
 * serves; must call no function of aiacc, and must not wait for threads that do. Not 0, or an exception of
 * C++: it has failed, and the pushes with it (AIACC_ERR_ABORTED); the value is then as the function has left it. */
typedef int (*aiacc_kv_update_t)(void *arg, aiacc_kv_key_t key, size_t first, size_t count, aiacc_dtype_t dtype,
                                 const void *gradient, void *value);

/* What servers do with a push. Zero all of it, set `size`. g is the gradient times `rescale`, clipped, plus weight_decay times
 * the value:
 *   SGD    value -= rate g; with momentum: m = momentum m - rate g, value += m
 *   ADAM   m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g g,
 *          value -= rate sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + epsilon) */
typedef struct aiacc_kv_updater {
  size_t size;              /* sizeof(aiacc_kv_updater_t) */
  int32_t kind;             /* AIACC_KV_ASSIGN to AIACC_KV_CALLBACK */
  double rate;              /* 0 means 0.01 */
  double momentum;          /* 0: none */
  double beta1;             /* 0 means 0.9 */
  double beta2;             /* 0 means 0.999 */
  double epsilon;           /* 0 means 1e-8 */
  double weight_decay;      /* 0: none */
  double rescale;           /* 0 means 1 */
  double clip;              /* rescaled gradients are cut to [-clip, clip]; 0: not */
  aiacc_kv_update_t update; /* AIACC_KV_CALLBACK */
  void *arg;
} aiacc_kv_updater_t;

/* Attributes of a store; NULL for defaults. Zero all of it, set `size`. Equal on all ranks but for timeout_ms. */
typedef struct aiacc_kv_attr {
  size_t size;           /* sizeof(aiacc_kv_attr_t) */
  const char *name;      /* for messages; copied */
  int32_t mode;          /* AIACC_KV_SYNC, _ASYNC or _BOUNDED */
  int32_t wire;          /* AIACC_KV_WIRE_ */
  uint64_t staleness;    /* of AIACC_KV_BOUNDED */
  double threshold;      /* of AIACC_KV_WIRE_2BIT; 0 means 0.5 */
  size_t split_elements; /* values with more elements are spread over all servers; 0 means 1,000,000 */
  size_t n_servers;      /* 0: all ranks; if n_workers is 0 too, those that the job says (AIACC_KV_SERVERS) */
  const int *servers;    /* ranks of the group, ascending; copied */
  size_t n_workers;      /* 0: all ranks; see n_servers */
  const int *workers;    /* ranks of the group, ascending; copied */
  int64_t timeout_ms;    /* of operations, as in aiacc_attr_t */
  int32_t replicas;      /* how many servers have each value: 2, or 0 or 1 for one. 2 needs at least two servers */
  int32_t traffic_class; /* AIACC_TRAFFIC_*, of all its messages between hosts; 0: AIACC_TRAFFIC_BULK */
} aiacc_kv_attr_t;

/* Makes a store over the ranks of `group`. Collective, blocks: ranks with other attributes are AIACC_ERR_MISMATCH on all. */
AIACC_API aiacc_status_t aiacc_kv_create(aiacc_group_t group, const aiacc_kv_attr_t *attr, aiacc_kv_t *kv);

/* Where this rank is among the store's workers and among its servers, -1 if it is none, and how many there are. Pointers may be NULL.
 * Local. A rank that only serves calls what all ranks call, as aiacc_kv_set_updater, and then aiacc_kv_free, which returns when the
 * workers have called it, or says why they cannot: AIACC_ERR_PEER_FAILED if one is lost. */
AIACC_API aiacc_status_t aiacc_kv_roles(aiacc_kv_t kv, int *worker, int *n_workers, int *server, int *n_servers);

/* Begins a key. The value is that of the first worker, whose `value` is read; others' may be NULL. Called by each worker, once,
 * with the same type and shape: AIACC_ERR_MISMATCH on a worker that has others. Ends when the value is on its servers. A row has
 * at most 512 KiB. */
AIACC_API aiacc_status_t aiacc_kv_init(aiacc_kv_t kv, aiacc_kv_key_t key, aiacc_dtype_t dtype, size_t rows,
                                       size_t row_elements, const void *value, const aiacc_attr_t *attr,
                                       aiacc_request_t *request);

/* Pushes a gradient for the whole value, `count` elements. Ends when the push is applied, with AIACC_KV_SYNC those of all. */
AIACC_API aiacc_status_t aiacc_kv_push(aiacc_kv_t kv, aiacc_kv_key_t key, size_t count, const void *gradient,
                                       const aiacc_attr_t *attr, aiacc_request_t *request);

/* Pulls the whole value, `count` elements. */
AIACC_API aiacc_status_t aiacc_kv_pull(aiacc_kv_t kv, aiacc_kv_key_t key, size_t count, void *value,
                                       const aiacc_attr_t *attr, aiacc_request_t *request);

/* aiacc_kv_push and aiacc_kv_pull with one message each way. `gradient` and `value` may be the same. */
AIACC_API aiacc_status_t aiacc_kv_pushpull(aiacc_kv_t kv, aiacc_kv_key_t key, size_t count, const void *gradient,
                                           void *value, const aiacc_attr_t *attr, aiacc_request_t *request);

/* Pushes a gradient with `n` rows, whose numbers `rows` has: in any order, a row that comes twice is summed, n may be 0. Only rows
 * that some worker pushes are updated. It is the worker's push of the round, as aiacc_kv_push is. */
AIACC_API aiacc_status_t aiacc_kv_push_rows(aiacc_kv_t kv, aiacc_kv_key_t key, size_t n, const int64_t *rows,
                                            const void *gradient, const aiacc_attr_t *attr, aiacc_request_t *request);

/* Pulls `n` rows of the value, one after the other. */
AIACC_API aiacc_status_t aiacc_kv_pull_rows(aiacc_kv_t kv, aiacc_kv_key_t key, size_t n, const int64_t *rows,
                                            void *values, const aiacc_attr_t *attr, aiacc_request_t *request);

/* Another updater from now on; momentum and moments stay with one of the same kind. Before it is called (by any thread) nothing is
 * outstanding on any rank. Collective, blocks; the updater is each server's own. */
AIACC_API aiacc_status_t aiacc_kv_set_updater(aiacc_kv_t kv, const aiacc_kv_updater_t *updater);

/* Another AIACC_KV_WIRE_ for what this rank pushes from now on. `threshold` is that of AIACC_KV_WIRE_2BIT, 0 means 0.5. Local. */
AIACC_API aiacc_status_t aiacc_kv_set_wire(aiacc_kv_t kv, int wire, double threshold);

/* Each server writes its values and what updaters remember of them to a file: `path`, a dot, and its rank. Nothing is outstanding
 * on any rank. Collective, blocks; `path` is each server's own. */
AIACC_API aiacc_status_t aiacc_kv_save(aiacc_kv_t kv, const char *path);

/* Each server reads what it wrote. The store has the same servers and split_elements, and its keys are initialised with the same
 * shapes. Momentum and moments are taken if the updater is of the same kind, so set it before. Nothing is outstanding on any rank.
 * A server whose file is no such state keeps what it has: AIACC_ERR_INVALID_ARGUMENT there, and AIACC_OK on the others.
 * Collective, blocks. */
AIACC_API aiacc_status_t aiacc_kv_load(aiacc_kv_t kv, const char *path);

/* The store is gone. What is outstanding on this rank completes with AIACC_ERR_ABORTED. Collective, blocks: a rank serves until
 * all others free the store too, and one that only serves has no time-out. Without replicas, calls of other workers that need one more
 * push of this one in a sync store, or a key that it has not begun as the first worker, end with AIACC_ERR_ABORTED about this rank.
 * aiacc_finalize frees the stores that are left. */
AIACC_API aiacc_status_t aiacc_kv_free(aiacc_kv_t kv);

#ifdef __cplusplus
}
#endif
#endif
