/* The header and the library from C17: compiled by tests/abi_process_test.py with -Wall -Wextra -pedantic -Werror against the
 * installed tree. Exits with 0, or prints what is wrong. */
#include <aiacc/aiacc.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(aiacc_group_t) == 8, "handles are 64 bits");
_Static_assert(offsetof(aiacc_attr_t, callback) == 48, "the attributes of a call keep their layout");
_Static_assert(offsetof(aiacc_init_attr_t, store) == 24, "the attributes of init keep their layout");
_Static_assert(sizeof(aiacc_store_t) == 40, "a store keeps its layout");
_Static_assert(AIACC_ERR_INTERNAL == 13 && AIACC_ERR_UNREACHABLE == 14 && AIACC_BOOL == 12 && AIACC_BXOR == 7,
               "values only grow");

#define CHECK(condition)                                                                                   \
  do {                                                                                                     \
    if (!(condition)) {                                                                                    \
      fprintf(stderr, "line %d: %s is false; last error: %s\n", __LINE__, #condition, aiacc_last_error()); \
      return 1;                                                                                            \
    }                                                                                                      \
  } while (0)

int main(void) {
  CHECK(strcmp(aiacc_last_error(), "") == 0);
  CHECK(aiacc_last_error_rank() == -1);
  CHECK(aiacc_initialized() == 0);
  CHECK(aiacc_barrier(AIACC_WORLD, NULL, NULL) == AIACC_ERR_INVALID_STATE);
  CHECK(strstr(aiacc_last_error(), "aiacc_init") != NULL);

  aiacc_init_attr_t init = {0};
  init.size = sizeof init;
  CHECK(aiacc_init(&init) == AIACC_OK);
  int rank = -1, size = -1, local_rank = -1, local_size = -1, host_index = -1;
  CHECK(aiacc_rank(AIACC_WORLD, &rank) == AIACC_OK);
  CHECK(aiacc_size(AIACC_WORLD, &size) == AIACC_OK);
  CHECK(aiacc_local_rank(AIACC_WORLD, &local_rank) == AIACC_OK);
  CHECK(aiacc_local_size(AIACC_WORLD, &local_size) == AIACC_OK);
  CHECK(aiacc_host_index(AIACC_WORLD, &host_index) == AIACC_OK);
  CHECK(rank >= 0 && rank < size && local_rank >= 0 && local_rank < local_size && host_index == 0);

  void* memory = NULL;
  CHECK(aiacc_mem_alloc(AIACC_NULL, 4 * sizeof(float), &memory) == AIACC_OK);
  float* shared = memory;
  for (int i = 0; i < 4; ++i) shared[i] = (float)(rank + i);
  aiacc_attr_t attr = {0};
  attr.size = sizeof attr;
  attr.name = "first";
  attr.timeout_ms = 60000;
  CHECK(aiacc_allreduce(shared, shared, 4, AIACC_FLOAT32, AIACC_SUM, AIACC_WORLD, &attr, NULL) == AIACC_OK);
  for (int i = 0; i < 4; ++i) CHECK(shared[i] == (float)(size * (size - 1) / 2 + size * i));

  int value = rank == 0 ? 42 : 0;
  aiacc_request_t request = AIACC_NULL;
  CHECK(aiacc_broadcast(&value, 1, AIACC_INT32, 0, AIACC_WORLD, NULL, &request) == AIACC_OK);
  aiacc_status_t status;
  do {
    status = aiacc_test(request);
  } while (status == AIACC_PENDING);
  CHECK(status == AIACC_OK && value == 42);
  CHECK(aiacc_wait(request) == AIACC_ERR_INVALID_HANDLE);

  CHECK(aiacc_mem_free(memory) == AIACC_OK);
  CHECK(strcmp(aiacc_version(), "0.1.0") == 0);
  CHECK(aiacc_dtype_size(AIACC_FLOAT64) == 8);
  CHECK(strcmp(aiacc_status_name(AIACC_ERR_TIMEOUT), "") != 0);
  CHECK(aiacc_finalize() == AIACC_OK);
  CHECK(aiacc_barrier(AIACC_WORLD, NULL, NULL) == AIACC_ERR_INVALID_STATE);
  return 0;
}
