/* Shaped like Caffe's multi-process solver: on_start gives everybody the root's parameters, each layer's gradient is reduced
 * in the background as soon as its backward step is done, and on_gradients_ready waits before the update. Exits with 0 if
 * every rank has the parameters that one process with all the data would have. */
#include <aiacc/aiacc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kLayers = 12, kIterations = 30 };

typedef struct {
  size_t count;
  float* data; /* parameters: the solver's own memory */
  float* diff; /* gradients: memory that the ranks of a host share */
} Blob;

typedef struct {
  Blob layers[kLayers];
  aiacc_request_t reducing[kLayers];
  int rank, size;
} Solver;

static void check(aiacc_status_t status, const char* what) {
  if (status == AIACC_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, aiacc_status_name(status), aiacc_last_error());
  exit(1);
}

static void set_up(Solver* solver) {
  check(aiacc_init(NULL), "init");
  check(aiacc_rank(AIACC_WORLD, &solver->rank), "rank");
  check(aiacc_size(AIACC_WORLD, &solver->size), "size");
  for (int i = 0; i < kLayers; ++i) {
    Blob* blob = &solver->layers[i];
    void* memory = NULL;
    blob->count = (size_t)1 << (i + 3); /* biases and fully connected layers: 32 B to 64 KiB */
    blob->data = calloc(blob->count, sizeof(float));
    if (blob->data == NULL) exit(2);
    check(aiacc_mem_alloc(AIACC_NULL, blob->count * sizeof(float), &memory), "mem_alloc");
    blob->diff = memory;
    for (size_t k = 0; k < blob->count; ++k) blob->data[k] = solver->rank == 0 ? (float)(k % 7) : -1.0f;
  }
}

static void on_start(Solver* solver) {
  for (int i = 0; i < kLayers; ++i) {
    Blob* blob = &solver->layers[i];
    check(aiacc_broadcast(blob->data, blob->count, AIACC_FLOAT32, 0, AIACC_WORLD, NULL, &solver->reducing[i]),
          "broadcast");
  }
  check(aiacc_wait_all(kLayers, solver->reducing, AIACC_FOREVER), "broadcasts");
}

/* Whole numbers, so that every sum is exact in every order. */
static float gradient(int rank, int iteration, size_t k) { return (float)((rank + 1) * (int)(k % 5) + iteration % 3); }

static void backward(const Solver* solver, int layer, int iteration) {
  const Blob* blob = &solver->layers[layer];
  for (size_t k = 0; k < blob->count; ++k) blob->diff[k] = gradient(solver->rank, iteration, k);
}

static void after_backward(Solver* solver, int layer) {
  const Blob* blob = &solver->layers[layer];
  char name[32];
  aiacc_attr_t attr = {0};
  attr.size = sizeof attr;
  attr.name = name;          /* copied */
  attr.priority = layer < 2; /* what the next forward step needs first */
  snprintf(name, sizeof name, "layer %d", layer);
  check(aiacc_allreduce(blob->diff, blob->diff, blob->count, AIACC_FLOAT32, AIACC_SUM, AIACC_WORLD, &attr,
                        &solver->reducing[layer]),
        "allreduce");
}

static void on_gradients_ready(Solver* solver) {
  check(aiacc_wait_all(kLayers, solver->reducing, AIACC_FOREVER), "gradients");
}

static void update(Solver* solver) {
  for (int i = 0; i < kLayers; ++i) {
    Blob* blob = &solver->layers[i];
    for (size_t k = 0; k < blob->count; ++k) blob->data[k] -= 0.0078125f * blob->diff[k];
  }
}

static void compare(const Solver* solver) {
  for (int i = 0; i < kLayers; ++i) {
    const Blob* blob = &solver->layers[i];
    for (size_t k = 0; k < blob->count; ++k) {
      float expected = (float)(k % 7);
      for (int iteration = 0; iteration < kIterations; ++iteration) {
        float sum = 0;
        for (int rank = 0; rank < solver->size; ++rank) sum += gradient(rank, iteration, k);
        expected -= 0.0078125f * sum;
      }
      if (blob->data[k] == expected) continue;
      fprintf(stderr, "rank %d: parameter %zu of layer %d is %g and not %g\n", solver->rank, k, i,
              (double)blob->data[k], (double)expected);
      exit(3);
    }
  }
}

int main(void) {
  static Solver solver;
  set_up(&solver);
  on_start(&solver);
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    for (int layer = kLayers; layer-- > 0;) {
      backward(&solver, layer, iteration);
      after_backward(&solver, layer);
    }
    on_gradients_ready(&solver);
    update(&solver);
  }
  compare(&solver);
  for (int i = 0; i < kLayers; ++i) {
    free(solver.layers[i].data);
    check(aiacc_mem_free(solver.layers[i].diff), "mem_free");
  }
  check(aiacc_finalize(), "finalize");
  return 0;
}
