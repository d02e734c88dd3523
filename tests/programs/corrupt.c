/* Loaded before libaiacc (LD_PRELOAD), alters one element of each long allreduce on rank 1, which aiacc-perf must detect. With
 * FAIL_AT set, the call with that many elements fails on rank 1 instead. */
#define _GNU_SOURCE
#include <aiacc/aiacc.h>
#include <dlfcn.h>
#include <stdlib.h>

aiacc_status_t aiacc_allreduce(const void* send, void* recv, size_t count, aiacc_dtype_t dtype, aiacc_op_t op,
                               aiacc_group_t group, const aiacc_attr_t* attr, aiacc_request_t* request) {
  aiacc_status_t (*real)(const void*, void*, size_t, aiacc_dtype_t, aiacc_op_t, aiacc_group_t, const aiacc_attr_t*,
                         aiacc_request_t*);
  *(void**)&real = dlsym(RTLD_NEXT, "aiacc_allreduce");
  const char* fail_at = getenv("FAIL_AT");
  int rank = 0;
  aiacc_rank(group, &rank);
  if (fail_at != NULL && rank == 1 && dtype == AIACC_FLOAT32 && (size_t)atoi(fail_at) == count) {
    return real(send, NULL, count, dtype, op, group, attr, request);
  }
  aiacc_status_t status = real(send, recv, count, dtype, op, group, attr, request);
  if (fail_at == NULL && rank == 1 && dtype == AIACC_FLOAT32 && count >= 16) ((float*)recv)[count / 2] += 1;
  return status;
}
