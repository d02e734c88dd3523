/* aiacc: an MPI-style runtime for distributed deep-learning training. The C ABI.
 *
 * Conventions, true for every function unless it says otherwise:
 * - Returns AIACC_OK (0) or a status; then aiacc_last_error() returns the error message, for the calling thread.
 * - Any thread may call. Nothing is thrown. Handles are 64-bit values that contain kind and generation: a stale or foreign
 *   one causes AIACC_ERR_INVALID_HANDLE, never a crash.
 * - "Collective" functions are called by every rank of the group, in the same order on each rank; all others are local.
 * - A collective blocks when `request` is NULL; otherwise it is started, *request is set, and its buffers belong to the
 *   library until the request completed. Errors in arguments are found before anything starts: then no request is made
 *   and the group stays usable. Any later error aborts the group on all its ranks (AIACC_ERR_ABORTED from then on) and no
 *   other group.
 * - Counts are in elements, not bytes. A buffer freed while its operation is running is undefined behaviour.
 * - `send` and `recv` are the same pointer for an operation in place, or do not overlap. Each rank chooses by itself.
 * - Every rank ends with the same bits. 16-bit floats accumulate in fp32. MIN and MAX propagate NaN and order -0 below +0.
 */
#ifndef AIACC_AIACC_H
#define AIACC_AIACC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define AIACC_API __attribute__((visibility("default")))
#else
#define AIACC_API
#endif

/* A caller may pass any int; in C++ this needs a fixed underlying type. */
#ifdef __cplusplus
#define AIACC_ENUM_TYPE : int
#else
#define AIACC_ENUM_TYPE
#endif

#define AIACC_VERSION_MAJOR 0
#define AIACC_VERSION_MINOR 1
#define AIACC_VERSION_PATCH 0

typedef enum aiacc_status AIACC_ENUM_TYPE {
  AIACC_OK = 0,
  AIACC_ERR_INVALID_ARGUMENT = 1, /* nothing was started */
  AIACC_ERR_INVALID_HANDLE = 2,
  AIACC_ERR_INVALID_STATE = 3, /* before init, after finalize, in a forked child, inside a callback */
  AIACC_ERR_UNSUPPORTED = 4,
  AIACC_ERR_OUT_OF_MEMORY = 5,
  AIACC_ERR_SYSTEM = 6,
  AIACC_ERR_TIMEOUT = 7,
  AIACC_ERR_PEER_FAILED = 8,
  AIACC_ERR_MISMATCH = 9,
  AIACC_ERR_ABORTED = 10,
  AIACC_ERR_PROTOCOL = 11,
  AIACC_PENDING = 12, /* not an error: the request is not complete yet */
  AIACC_ERR_INTERNAL = 13,
  AIACC_ERR_UNREACHABLE = 14, /* a path between two members was broken for AIACC_PATH_TIMEOUT; both may be alive */
  AIACC_ERR_NOT_FINITE = 15   /* a gradient is not finite (AIACC_NAN_CHECK); its engine goes on */
} aiacc_status_t;

typedef enum aiacc_dtype AIACC_ENUM_TYPE {
  AIACC_INT8 = 0,
  AIACC_UINT8 = 1,
  AIACC_INT16 = 2,
  AIACC_UINT16 = 3,
  AIACC_INT32 = 4,
  AIACC_UINT32 = 5,
  AIACC_INT64 = 6,
  AIACC_UINT64 = 7,
  AIACC_FLOAT16 = 8,
  AIACC_BFLOAT16 = 9,
  AIACC_FLOAT32 = 10,
  AIACC_FLOAT64 = 11,
  AIACC_BOOL = 12,  /* one byte, 0 or 1 */
  AIACC_RECORD = 13 /* as many bytes as an operator of aiacc_op_create says; only for reductions by it */
} aiacc_dtype_t;

typedef enum aiacc_op AIACC_ENUM_TYPE {
  AIACC_SUM = 0,
  AIACC_AVG = 1, /* the sum divided by the number of ranks; integers truncate towards zero */
  AIACC_PROD = 2,
  AIACC_MIN = 3,
  AIACC_MAX = 4,
  AIACC_BAND = 5, /* bitwise: integers and bool */
  AIACC_BOR = 6,
  AIACC_BXOR = 7
} aiacc_op_t;

typedef uint64_t aiacc_context_t; /* one rank; a process may hold several */
typedef uint64_t aiacc_group_t;
typedef uint64_t aiacc_request_t;
typedef uint64_t aiacc_mesh_t;
typedef uint64_t aiacc_registration_t;

#define AIACC_NULL ((uint64_t)0)
/* The group of all ranks of the default context (the one that aiacc_init makes). */
#define AIACC_WORLD ((aiacc_group_t)1)

/* A key-value store that all ranks of a job can access (torch's, etcd ...), for the rendezvous. Keys are printable text,
 * values any bytes. The functions return 0; with any other number aiacc_init fails, and its error message contains it. They
 * are called on the thread of aiacc_init only. `get` and `wait` wait until the keys exist; after `timeout_ms` they return a
 * number other than 0. The store must be trusted: rank 0 puts the secret of the job's first connections there. */
typedef struct aiacc_store {
  size_t size; /* sizeof(aiacc_store_t) */
  void *arg;   /* first argument of the functions */
  /* Replaces an older value. */
  int (*put)(void *arg, const char *key, const void *value, size_t bytes);
  /* Writes at most `capacity` bytes, and sets *bytes to the length of the value. */
  int (*get)(void *arg, const char *key, void *value, size_t capacity, size_t *bytes, int64_t timeout_ms);
  int (*wait)(void *arg, const char *const *keys, size_t n, int64_t timeout_ms);
} aiacc_store_t;

/* Attributes of a context. Zero all of it, set `size`, then what you need: zero means the default everywhere. */
typedef struct aiacc_init_attr {
  size_t size;            /* sizeof(aiacc_init_attr_t) */
  int32_t world_size_set; /* 1: `rank` and `world_size` are given here */
  int32_t rank;
  int32_t world_size;
  int32_t timeout_ms;         /* of the initialisation; default AIACC_INIT_TIMEOUT (300 s) */
  const aiacc_store_t *store; /* used for the rendezvous in place of aiaccrun's agent, until aiacc_init returns */
  const char *job;            /* distinguishes jobs that share an address or a store; default AIACC_JOB */
} aiacc_init_attr_t;

/* Called once when an operation has completed, on the context's completion thread, with no lock held. `error` is the error
 * message ("" with AIACC_OK), valid during the call. Blocking calls fail there with AIACC_ERR_INVALID_STATE: collectives
 * without a request or a callback, waits, aiacc_finalize. An exception from it ends the process. */
typedef void (*aiacc_callback_t)(aiacc_status_t status, const char *error, void *arg);

#define AIACC_MEMORY_HOST 0

/* Traffic classes of messages between hosts. AIACC_TC_CTRL, _LAT, _BULK and _BG mark their packets. */
#define AIACC_TRAFFIC_DEFAULT 0 /* short messages go as LATENCY, long ones as BULK */
#define AIACC_TRAFFIC_CONTROL 1 /* before all others; aborts and questions about late ranks go in it too */
#define AIACC_TRAFFIC_LATENCY 2
#define AIACC_TRAFFIC_BULK 3
#define AIACC_TRAFFIC_BACKGROUND 4 /* what nobody waits for: checkpoints, copies of data */

/* Attributes of one operation; NULL for defaults. Zero all of it, set `size`. */
typedef struct aiacc_attr {
  size_t size;           /* sizeof(aiacc_attr_t) */
  const char *name;      /* for messages and traces; copied */
  int64_t timeout_ms;    /* 0: AIACC_TIMEOUT (1,800 s); -1: none */
  double prescale;       /* 0 means 1; each input is multiplied by it, in the accumulate type */
  double postscale;      /* 0 means 1; the result likewise */
  int32_t priority;      /* above 0: its messages between hosts go before others'; see aiacc_allreduce(3) */
  int32_t traffic_class; /* AIACC_TRAFFIC_*, of all its messages between hosts, whatever `priority` says */
  /* NULL: none. With a callback and a NULL request the call does not block, and only the callback reports its end. */
  aiacc_callback_t callback;
  void *callback_arg;
  int32_t memory_kind; /* of the buffers: AIACC_MEMORY_HOST; others fail with AIACC_ERR_UNSUPPORTED */
} aiacc_attr_t;

/* Attributes of a group; NULL for defaults. Zero all of it, set `size`. */
typedef struct aiacc_group_attr {
  size_t size;           /* sizeof(aiacc_group_attr_t) */
  const char *name;      /* for messages; copied */
  uint64_t key;          /* equal on all members; distinguishes groups of equal members that several threads make */
  int64_t timeout_ms;    /* of its operations without a time-out of their own; 0: AIACC_TIMEOUT; -1: none */
  int32_t traffic_class; /* AIACC_TRAFFIC_*, of its operations without a class of their own, on this rank */
} aiacc_group_attr_t;

/* --- life ---------------------------------------------------------------------------------------------------------- */

/* Makes the default context: finds rank, size and peers from `attr`, from aiaccrun, from AIACC_RENDEZVOUS, or (a world of
 * one) from nothing at all. Collective over the job. `attr` may be NULL. */
AIACC_API aiacc_status_t aiacc_init(const aiacc_init_attr_t *attr);
/* Leaves the job in order. Collective; waits for operations that are still running. All ranks may call aiacc_init again. */
AIACC_API aiacc_status_t aiacc_finalize(void);
/* 1 between a successful aiacc_init and aiacc_finalize, otherwise 0. Never fails. */
AIACC_API int aiacc_initialized(void);
/* In an elastic job (aiaccrun --max-np, --host-discovery-script): whether the next world has other ranks than this one. *what is
 * 0, or the sum of what aiaccrun has said since aiacc_init. Then all ranks may leave this world (aiacc_finalize) and enter the
 * next (aiacc_init), when they agree to. Local: ranks learn of it at different times. */
#define AIACC_HOSTS_REMOVED \
  1 /* ranks of this world are not in the next, and their aiacc_init fails with AIACC_ERR_ABORTED */
#define AIACC_HOSTS_ADDED 2 /* new ranks wait in aiacc_init */
AIACC_API aiacc_status_t aiacc_hosts_updated(int *what);

/* Makes `n` contexts, ranks 0 to n-1 of one world inside this process, for threads as ranks: contexts[i] is used by the
 * thread that is rank i. Local. */
AIACC_API aiacc_status_t aiacc_context_create_local(size_t n, aiacc_context_t *contexts);
/* Destroys a context made by aiacc_context_create_local. Collective over its world. */
AIACC_API aiacc_status_t aiacc_context_destroy(aiacc_context_t context);
/* The group of all ranks of `context`. */
AIACC_API aiacc_status_t aiacc_context_world(aiacc_context_t context, aiacc_group_t *world);

/* --- who is who ---------------------------------------------------------------------------------------------------- */

AIACC_API aiacc_status_t aiacc_rank(aiacc_group_t group, int *rank);
AIACC_API aiacc_status_t aiacc_size(aiacc_group_t group, int *size);
/* Among the ranks of the group on this host. */
AIACC_API aiacc_status_t aiacc_local_rank(aiacc_group_t group, int *local_rank);
AIACC_API aiacc_status_t aiacc_local_size(aiacc_group_t group, int *local_size);
/* Index of this rank's host among the hosts of the group. */
AIACC_API aiacc_status_t aiacc_host_index(aiacc_group_t group, int *host_index);

/* --- groups -------------------------------------------------------------------------------------------------------- */

/* The group of these `n` ranks of `parent`, in this order: ranks[i] becomes rank i. Called by exactly those ranks, with
 * equal lists; groups of equal members are made in the same order on each of them. No message is sent and no rank waits:
 * members find each other in the group's first operation. The group is independent of its parent and of other groups, also
 * if these end by an error or are freed; the death of a member ends it. */
AIACC_API aiacc_status_t aiacc_group_create(aiacc_group_t parent, size_t n, const int *ranks,
                                            const aiacc_group_attr_t *attr, aiacc_group_t *group);
/* Makes a group of the ranks with the same color, ordered by key, then by their rank in `parent`. One allgather of 8 bytes;
 * blocks. With AIACC_NO_COLOR a rank is in no group, and *group is AIACC_NULL. Collective over `parent`. */
#define AIACC_NO_COLOR (-1)
AIACC_API aiacc_status_t aiacc_group_split(aiacc_group_t parent, int color, int key, const aiacc_group_attr_t *attr,
                                           aiacc_group_t *group);
/* Invalidates the handle; running operations continue. Local: the other members may use the group as long as they need
 * nothing of this one. The group's shared memory is released once all its members on this host have freed it. */
AIACC_API aiacc_status_t aiacc_group_free(aiacc_group_t group);
/* Ends the group on all its members: running and later operations fail with AIACC_ERR_ABORTED and `reason` (may be NULL).
 * Local; members that wait in an operation get the error at once, others in their next one. */
AIACC_API aiacc_status_t aiacc_group_abort(aiacc_group_t group, const char *reason);
/* translated[i] = rank in `to` of rank ranks[i] of `from`, -1 if it is not a member of `to`. Local. */
AIACC_API aiacc_status_t aiacc_group_translate(aiacc_group_t from, size_t n, const int *ranks, aiacc_group_t to,
                                               int *translated);
/* How many collectives this rank has begun on the group: equal on all members at the same point of the program. */
AIACC_API aiacc_status_t aiacc_group_sequence(aiacc_group_t group, uint64_t *sequence);

/* The ranks of `parent` as a grid: axes with names and sizes, whose product is the size of the parent. The last axis varies
 * fastest: with axes {"data", 2}, {"tensor", 4} ranks 0 to 3 are one row along "tensor". All ranks make the same mesh;
 * nothing is exchanged. */
AIACC_API aiacc_status_t aiacc_mesh_create(aiacc_group_t parent, size_t axes, const char *const *names,
                                           const int *sizes, aiacc_mesh_t *mesh);
/* The group of this rank and all ranks whose coordinates differ from its own along the named axes only, in the order of the
 * parent's ranks. The first call makes it, as aiacc_group_create does; later calls return the same handle. It is freed with
 * the mesh. */
AIACC_API aiacc_status_t aiacc_mesh_group(aiacc_mesh_t mesh, size_t axes, const char *const *names,
                                          aiacc_group_t *group);
/* The coordinate of this rank along an axis: 0 to its size - 1. */
AIACC_API aiacc_status_t aiacc_mesh_coordinate(aiacc_mesh_t mesh, const char *axis, int *index);
/* The mesh of an order as Megatron writes them: names joined by '-', the first of which varies fastest, as "tp-cp-dp-pp"; sizes[i]
 * is that of the i-th name, and one of them may be 0: as many as the others leave. A mixture of experts has two meshes of one
 * parent, for dense parameters and for those of experts. All ranks make the same mesh; nothing is exchanged. */
AIACC_API aiacc_status_t aiacc_mesh_create_ordered(aiacc_group_t parent, const char *order, size_t axes,
                                                   const int *sizes, aiacc_mesh_t *mesh);
/* The group in which the gradient of a parameter is reduced. `split`: the axes along which ranks hold different parts of it, or
 * other parameters (tensor, pipeline, expert); along all others they hold the same. With all axes it is this rank alone.
 * Otherwise as aiacc_mesh_group. */
AIACC_API aiacc_status_t aiacc_mesh_gradient_group(aiacc_mesh_t mesh, size_t axes, const char *const *split,
                                                   aiacc_group_t *group);
/* The first and the last rank of the row of this rank along an axis, as those of a pipeline that share an embedding, or one rank
 * if the axis has size 1; AIACC_NULL for ranks between them. Otherwise as aiacc_mesh_group. */
AIACC_API aiacc_status_t aiacc_mesh_ends_group(aiacc_mesh_t mesh, const char *axis, aiacc_group_t *group);
/* *rank = the parent's number of the rank that is `distance` further along an axis, which may be negative, for aiacc_send and
 * aiacc_recv between the stages of a pipeline; -1 beyond the ends. Local. */
AIACC_API aiacc_status_t aiacc_mesh_shift(aiacc_mesh_t mesh, const char *axis, int distance, int *rank);
/* Frees the mesh and its groups, as aiacc_group_free does. Local. */
AIACC_API aiacc_status_t aiacc_mesh_free(aiacc_mesh_t mesh);

/* --- collectives --------------------------------------------------------------------------------------------------- */

/* recv[i] = op over ranks of send[i]; count elements on each rank. Collective. */
AIACC_API aiacc_status_t aiacc_allreduce(const void *send, void *recv, size_t count, aiacc_dtype_t dtype, aiacc_op_t op,
                                         aiacc_group_t group, const aiacc_attr_t *attr, aiacc_request_t *request);
/* Allreduce of `n` tensors of one type as one operation: recvs[i] is the reduction of sends[i], which has counts[i] elements.
 * Small tensors are packed and sent together. The lists are copied before the call returns; counts are equal on every rank.
 * sends[i] and recvs[i] are the same pointer or do not overlap. Collective. */
AIACC_API aiacc_status_t aiacc_allreduce_grouped(size_t n, const void *const *sends, void *const *recvs,
                                                 const size_t *counts, aiacc_dtype_t dtype, aiacc_op_t op,
                                                 aiacc_group_t group, const aiacc_attr_t *attr,
                                                 aiacc_request_t *request);
/* As allreduce, at `root` only; recv may be NULL elsewhere. Collective. */
AIACC_API aiacc_status_t aiacc_reduce(const void *send, void *recv, size_t count, aiacc_dtype_t dtype, aiacc_op_t op,
                                      int root, aiacc_group_t group, const aiacc_attr_t *attr,
                                      aiacc_request_t *request);
/* Copies the buffer of `root` to all ranks. Collective. */
AIACC_API aiacc_status_t aiacc_broadcast(void *buffer, size_t count, aiacc_dtype_t dtype, int root, aiacc_group_t group,
                                         const aiacc_attr_t *attr, aiacc_request_t *request);
/* recv[r * count .. (r+1) * count) = send of rank r; recv holds size * count elements. In place: send is
 * recv + rank * count. Collective. */
AIACC_API aiacc_status_t aiacc_allgather(const void *send, void *recv, size_t count, aiacc_dtype_t dtype,
                                         aiacc_group_t group, const aiacc_attr_t *attr, aiacc_request_t *request);
/* As allgather with a block of its own length from each rank: counts[r] elements of rank r at recv + displacements[r] (NULL:
 * one block after another). `counts` is the same on every rank; send_count is counts[rank]. Both arrays are copied before
 * the call returns. In place: send is this rank's block of recv. Collective. */
AIACC_API aiacc_status_t aiacc_allgatherv(const void *send, size_t send_count, void *recv, const size_t *counts,
                                          const size_t *displacements, aiacc_dtype_t dtype, aiacc_group_t group,
                                          const aiacc_attr_t *attr, aiacc_request_t *request);
/* recv[i] = op over ranks of send[rank * count + i]; send holds size * count elements, recv `count`. In place: recv is
 * send + rank * count. Collective. */
AIACC_API aiacc_status_t aiacc_reduce_scatter(const void *send, void *recv, size_t count, aiacc_dtype_t dtype,
                                              aiacc_op_t op, aiacc_group_t group, const aiacc_attr_t *attr,
                                              aiacc_request_t *request);
/* As reduce_scatter with a block of its own length for each rank: rank r gets the reduction of counts[r] elements, which
 * follow those of the ranks below it in `send`. `counts` is the same on every rank and copied. In place: recv is this rank's
 * block of send. Collective. */
AIACC_API aiacc_status_t aiacc_reduce_scatterv(const void *send, void *recv, const size_t *counts, aiacc_dtype_t dtype,
                                               aiacc_op_t op, aiacc_group_t group, const aiacc_attr_t *attr,
                                               aiacc_request_t *request);
/* recv[r * count .. (r+1) * count) = send[rank * count ..) of rank r: count elements for each pair of ranks; both buffers
 * hold size * count. In place: send is recv. Collective. */
AIACC_API aiacc_status_t aiacc_alltoall(const void *send, void *recv, size_t count, aiacc_dtype_t dtype,
                                        aiacc_group_t group, const aiacc_attr_t *attr, aiacc_request_t *request);
/* As alltoall with a length for each pair: send_counts[r] elements at send + send_displacements[r] go to rank r, and
 * recv_counts[r] from there to recv + recv_displacements[r] (NULL: consecutive blocks). The two ends of a block must give
 * the same count. The arrays are copied. Not in place. Collective. */
AIACC_API aiacc_status_t aiacc_alltoallv(const void *send, const size_t *send_counts, const size_t *send_displacements,
                                         void *recv, const size_t *recv_counts, const size_t *recv_displacements,
                                         aiacc_dtype_t dtype, aiacc_group_t group, const aiacc_attr_t *attr,
                                         aiacc_request_t *request);
/* At `root` recv[r * count .. (r+1) * count) = send of rank r; elsewhere recv may be NULL. In place, at the root: send is
 * recv + root * count. Collective. */
AIACC_API aiacc_status_t aiacc_gather(const void *send, void *recv, size_t count, aiacc_dtype_t dtype, int root,
                                      aiacc_group_t group, const aiacc_attr_t *attr, aiacc_request_t *request);
/* As gather with send_count elements of each rank. `counts` and `displacements` say at the root, where counts[r] is what rank
 * r sends, where they go (NULL displacements: one block after another); elsewhere they are not looked at. Collective. */
AIACC_API aiacc_status_t aiacc_gatherv(const void *send, size_t send_count, void *recv, const size_t *counts,
                                       const size_t *displacements, aiacc_dtype_t dtype, int root, aiacc_group_t group,
                                       const aiacc_attr_t *attr, aiacc_request_t *request);
/* recv = send[rank * count ..) of `root`, whose send holds size * count elements; elsewhere send may be NULL. In place, at the
 * root: recv is send + root * count. Collective. */
AIACC_API aiacc_status_t aiacc_scatter(const void *send, void *recv, size_t count, aiacc_dtype_t dtype, int root,
                                       aiacc_group_t group, const aiacc_attr_t *attr, aiacc_request_t *request);
/* As scatter with counts[r] elements at send + displacements[r] for rank r, which passes that number as recv_count. Only
 * the root's arrays are read. Collective. */
AIACC_API aiacc_status_t aiacc_scatterv(const void *send, const size_t *counts, const size_t *displacements, void *recv,
                                        size_t recv_count, aiacc_dtype_t dtype, int root, aiacc_group_t group,
                                        const aiacc_attr_t *attr, aiacc_request_t *request);
/* Returns on each rank after all have called it. Collective. */
AIACC_API aiacc_status_t aiacc_barrier(aiacc_group_t group, const aiacc_attr_t *attr, aiacc_request_t *request);

/* Point to point: matched by (sender, tag) in the order of the calls. Sizes must agree. A send may complete before the
 * receive is posted. */
AIACC_API aiacc_status_t aiacc_send(const void *buffer, size_t count, aiacc_dtype_t dtype, int to, uint32_t tag,
                                    aiacc_group_t group, const aiacc_attr_t *attr, aiacc_request_t *request);
AIACC_API aiacc_status_t aiacc_recv(void *buffer, size_t count, aiacc_dtype_t dtype, int from, uint32_t tag,
                                    aiacc_group_t group, const aiacc_attr_t *attr, aiacc_request_t *request);

/* A concurrent send and recv: neither waits for the other, so ranks may pass messages round a ring. Each half matches like a
 * separate call. */
AIACC_API aiacc_status_t aiacc_sendrecv(const void *send, size_t send_count, int to, uint32_t send_tag, void *recv,
                                        size_t recv_count, int from, uint32_t recv_tag, aiacc_dtype_t dtype,
                                        aiacc_group_t group, const aiacc_attr_t *attr, aiacc_request_t *request);
/* Receives the next message with `tag` from any rank, and sets *from, which must stay valid until the operation has
 * completed. A posted aiacc_recv from the sender's rank takes precedence. */
AIACC_API aiacc_status_t aiacc_recv_any(void *buffer, size_t count, aiacc_dtype_t dtype, int *from, uint32_t tag,
                                        aiacc_group_t group, const aiacc_attr_t *attr, aiacc_request_t *request);

/* --- operators ----------------------------------------------------------------------------------------------------- */

/* inout[i] = inout[i] op in[i] for `records` records; `inout` holds the lower ranks' operand, unless the operator is
 * commutative. Called on any thread, also concurrently for different memory. It must be associative, and must not call
 * functions of aiacc. */
typedef void (*aiacc_op_function_t)(void *inout, const void *in, size_t records, void *arg);
typedef struct aiacc_op_attr {
  size_t size;         /* sizeof(aiacc_op_attr_t) */
  const char *name;    /* for messages, and compared between ranks; copied */
  int32_t commutative; /* 1: operands may be exchanged, which is faster over several hosts */
} aiacc_op_attr_t;
/* Makes an operator on records of `record_bytes` (1 to 512) for reductions of AIACC_RECORD, whose counts are in records. All
 * ranks pass operators of the same name, record size and commutativity. `function` gets records at any address, whatever
 * the alignment of the caller's is, and throws no exception. `attr` may be NULL. Local. */
AIACC_API aiacc_status_t aiacc_op_create(aiacc_op_function_t function, void *arg, size_t record_bytes,
                                         const aiacc_op_attr_t *attr, aiacc_op_t *op);
/* Running operations keep it alive. Local. */
AIACC_API aiacc_status_t aiacc_op_free(aiacc_op_t op);

/* --- requests ------------------------------------------------------------------------------------------------------ */

/* The operation's status if it has completed (then the request is freed), otherwise AIACC_PENDING. Does not wait; moves the
 * rank's running operations on by what can be done at once. */
AIACC_API aiacc_status_t aiacc_test(aiacc_request_t request);
/* Waits for the operation, returns its status, and frees the request. */
AIACC_API aiacc_status_t aiacc_wait(aiacc_request_t request);
/* As aiacc_wait, but returns AIACC_PENDING after `timeout_ms`; then the request stays valid. */
AIACC_API aiacc_status_t aiacc_wait_for(aiacc_request_t request, int64_t timeout_ms);
#define AIACC_FOREVER ((int64_t)-1)
/* Waits until one of the requests that are not AIACC_NULL completed; *index is its place, and it becomes AIACC_NULL;
 * returns its status. AIACC_PENDING after timeout_ms (AIACC_FOREVER: never), with nothing changed. With n == 0, or
 * requests that are all AIACC_NULL, AIACC_OK and *index is n. */
AIACC_API aiacc_status_t aiacc_wait_any(size_t n, aiacc_request_t *requests, int64_t timeout_ms, size_t *index);
/* Waits until all completed; they become AIACC_NULL. Returns the first error in the order of the array. AIACC_PENDING after
 * timeout_ms: then those that completed well are AIACC_NULL, and the others stay as they are. */
AIACC_API aiacc_status_t aiacc_wait_all(size_t n, aiacc_request_t *requests, int64_t timeout_ms);
/* Frees the request without waiting. The operation continues, and its buffers belong to the library until it has ended. */
AIACC_API aiacc_status_t aiacc_request_free(aiacc_request_t request);
/* Status and error message of a completed request, which stays valid; AIACC_PENDING and "" before. *sentence is valid as
 * long as the request. */
AIACC_API aiacc_status_t aiacc_request_error(aiacc_request_t request, const char **sentence);
/* The number that the operation has among the collectives (or among the messages) of its group: 1 for the first.
 * AIACC_PENDING until it was begun; 0 if it failed before that. */
AIACC_API aiacc_status_t aiacc_request_sequence(aiacc_request_t request, uint64_t *sequence);

/* --- memory -------------------------------------------------------------------------------------------------------- */

/* Memory that the ranks of this host share: collectives on it move the fewest bytes. Belongs to the caller until
 * aiacc_mem_free. `context` AIACC_NULL means the default one. Local. */
AIACC_API aiacc_status_t aiacc_mem_alloc(aiacc_context_t context, size_t bytes, void **memory);
/* No operation on any rank may still use it. */
AIACC_API aiacc_status_t aiacc_mem_free(void *memory);
/* Prepares `bytes` bytes of host memory of the caller's own for operations: takes its pages now, as if they were written
 * to, and changes nothing in them. Any range that is mapped and writable; it may overlap others that are registered. The
 * memory stays the caller's and must stay mapped until aiacc_mem_deregister. `context` AIACC_NULL means the default one,
 * whose end drops its registrations. Operations whose buffers lie in it name it to the network that moves them; none of this
 * build needs it. No operation may use the memory when it is deregistered. Local. */
AIACC_API aiacc_status_t aiacc_mem_register(aiacc_context_t context, void *memory, size_t bytes,
                                            aiacc_registration_t *registration);
AIACC_API aiacc_status_t aiacc_mem_deregister(aiacc_registration_t registration);

/* --- errors and version -------------------------------------------------------------------------------------------- */

/* The message of this thread's last failed call, "" if there was none. Valid until the next failing call. */
AIACC_API const char *aiacc_last_error(void);
/* "peer failed" for AIACC_ERR_PEER_FAILED and so on; never NULL. */
AIACC_API const char *aiacc_status_name(aiacc_status_t status);
/* The rank that the message of this thread's last failed call concerns, -1 if none. */
AIACC_API int aiacc_last_error_rank(void);
/* All ranks that the last failed call of this thread was about, ascending: those that were missing in a barrier whose time
 * was over. At most `capacity` are written; *count is how many there are. Leaves the last error as it is. */
AIACC_API aiacc_status_t aiacc_last_error_ranks(int *ranks, size_t capacity, size_t *count);
/* "0.1.0": the version of the library that runs, which may be newer than the header. */
AIACC_API const char *aiacc_version(void);
/* Bytes of one element; 0 for AIACC_RECORD and unknown types. */
AIACC_API size_t aiacc_dtype_size(aiacc_dtype_t dtype);

/* JSON about the library, this host, its topology, network devices and transports, the settings in force with their origins,
 * and the limits that will hurt, each with one cure: what aiacc-info prints. As snprintf: writes at most `capacity` bytes with
 * the terminating 0 (`json` may be NULL if it is 0), and *needed (may be NULL) is the whole length with it. Local; works
 * before aiacc_init. The text differs from call to call. */
AIACC_API aiacc_status_t aiacc_info(char *json, size_t capacity, size_t *needed);

#ifdef __cplusplus
}
#endif
#endif
