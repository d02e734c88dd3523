/* aiacc: what a rank does, for people and for monitoring: a timeline of gradients, and numbers.
 *
 * The conventions of aiacc.h hold. All calls are local and may be made by any thread of a rank.
 */
#ifndef AIACC_OBSERVE_H
#define AIACC_OBSERVE_H

#include <aiacc/aiacc.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Begins a timeline: a trace in the format of Chrome and Perfetto, with a process for each rank and a row for each gradient of an
 * engine. Rank 0 writes it to `file`, which it replaces and which must be a regular file; other ranks send theirs there and
 * ignore `file` (it may be NULL). Every rank that calls this is in the file; the n-th call of a rank belongs to the n-th of
 * rank 0. Calls need not meet: what other ranks do before rank 0 has called is kept. The file is whole JSON at all times and
 * lags behind by about 0.2 s. `context` is AIACC_NULL for the default one. AIACC_ERR_INVALID_STATE: a timeline is being written
 * already, for instance that of AIACC_TIMELINE. AIACC_ERR_SYSTEM: the file cannot be written (rank 0). */
AIACC_API aiacc_status_t aiacc_timeline_start(aiacc_context_t context, const char *file);
/* Ends the timeline: at rank 0 on all ranks, elsewhere on this rank. Returns when what this rank knows is written, or sent; rank 0
 * waits for the others up to 1.5 s. Without a timeline it does nothing. aiacc_finalize does it too. */
AIACC_API aiacc_status_t aiacc_timeline_stop(aiacc_context_t context);

/* JSON about this rank: {"rank", "size", "host", "gradient": {...}} with what its gradient engines have counted since its begin,
 * those that are freed included: aiacc_metrics(3) lists the members. As snprintf: writes at most `capacity` bytes with the
 * terminating 0 (`json` may be NULL if it is 0), and *needed (may be NULL) is the whole length with it. `context` is AIACC_NULL
 * for the default one. */
AIACC_API aiacc_status_t aiacc_metrics(aiacc_context_t context, char *json, size_t capacity, size_t *needed);

#ifdef __cplusplus
}
#endif
#endif
