// Training with a key-value store as parameter server: servers hold the parameters and make the steps; workers push gradients and get
// parameters back. All ranks are both, or the last N only serve (aiaccrun --servers N). The digits and the network are those of examples/digits.
//
//   sync      a step of all workers at a time: the run does not depend on the number of ranks
//   async     each worker's gradient is a step of its own
//   bounded   as async, but no worker gets more than four steps ahead of the slowest
#include <aiacc/aiacc.h>
#include <aiacc/kv.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "images.h"
#include "network.h"

namespace {

constexpr std::size_t kHidden = 64;
constexpr std::size_t kBatch = 64;  // over all ranks
constexpr std::size_t kEpochs = 10;
constexpr std::size_t kKeys = 4;  // as if each were a layer

void check(aiacc_status_t status) {
  if (status != AIACC_OK) throw std::runtime_error(aiacc_last_error());
}

// The group of those that train: what they sum among themselves concerns no server.
aiacc_group_t first_ranks(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  aiacc_group_t group = AIACC_NULL;
  check(aiacc_group_create(AIACC_WORLD, count, ranks.data(), nullptr, &group));
  return group;
}

// The parameters of this rank, and the store that has the true ones.
class Parameters {
 public:
  Parameters(std::size_t count, int mode) : values(count), gradient(count) {
    aiacc_kv_attr_t attr{};
    attr.size = sizeof attr;
    attr.name = "digits";
    attr.mode = mode;
    attr.staleness = 4;
    check(aiacc_kv_create(AIACC_WORLD, &attr, &store_));
    aiacc_kv_updater_t updater{};
    updater.size = sizeof updater;
    updater.kind = AIACC_KV_SGD;
    updater.rate = 0.05;
    updater.momentum = 0.9;
    check(aiacc_kv_set_updater(store_, &updater));
    check(aiacc_kv_roles(store_, &worker, &workers, nullptr, nullptr));
  }
  ~Parameters() {
    if (store_ != AIACC_NULL) aiacc_kv_free(store_);
  }
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  // The store begins with those of the first worker.
  void initialise() {
    for (std::size_t piece = 0; piece < kKeys; ++piece) {
      check(aiacc_kv_init(store_, key(piece), AIACC_FLOAT64, size(piece), 1, &values[begin(piece)], nullptr, nullptr));
    }
    pull();
  }
  void pull() {
    exchange([&](std::size_t piece, aiacc_request_t* request) {
      return aiacc_kv_pull(store_, key(piece), size(piece), &values[begin(piece)], nullptr, request);
    });
  }
  // Gives the gradient and gets the parameters after it, for all keys at a time.
  void step() {
    exchange([&](std::size_t piece, aiacc_request_t* request) {
      return aiacc_kv_pushpull(store_, key(piece), size(piece), &gradient[begin(piece)], &values[begin(piece)], nullptr,
                               request);
    });
  }
  void close() { check(aiacc_kv_free(std::exchange(store_, AIACC_NULL))); }

  std::vector<double> values, gradient;
  int worker = 0, workers = 0;  // this rank among those that train, -1 if it only serves; and their number

 private:
  static aiacc_kv_key_t key(std::size_t piece) { return {nullptr, static_cast<std::int64_t>(piece)}; }
  std::size_t begin(std::size_t piece) const { return values.size() * piece / kKeys; }
  std::size_t size(std::size_t piece) const { return begin(piece + 1) - begin(piece); }

  template <class Start>
  static void exchange(Start&& start) {
    aiacc_request_t requests[kKeys];
    for (std::size_t piece = 0; piece < kKeys; ++piece) check(start(piece, &requests[piece]));
    for (const aiacc_request_t request : requests) check(aiacc_wait(request));
  }

  aiacc_kv_t store_ = AIACC_NULL;
};

void run(const std::string& data, int mode) {
  std::vector<digits::Image> images = digits::read_images(data);
  digits::Random random(1);  // equal on all ranks
  random.shuffle(std::span(images));
  const std::size_t train = images.size() * 4 / 5, tests = images.size() - train;

  const digits::Network network(kHidden);
  Parameters parameters(network.parameters(), mode);
  if (parameters.worker < 0) return parameters.close();  // serves until the workers close it
  const int rank = parameters.worker, size = parameters.workers;
  const aiacc_group_t workers = first_ranks(size);
  network.initialise(parameters.values, random.next());
  parameters.initialise();

  std::vector<std::size_t> order(train);
  std::iota(order.begin(), order.end(), std::size_t{0});
  double loss = 0;
  for (std::size_t epoch = 1; epoch <= kEpochs; ++epoch) {
    random.shuffle(std::span(order));
    loss = 0;
    for (std::size_t at = 0; at < train; at += kBatch) {
      const std::size_t count = std::min(kBatch, train - at);
      const digits::Share mine(count, rank, size);
      std::fill(parameters.gradient.begin(), parameters.gradient.end(), 0.0);
      for (std::size_t i = mine.begin; i < mine.end; ++i) {
        loss += network.backward(parameters.values, images[order[at + i]], parameters.gradient).loss;
      }
      for (double& element : parameters.gradient) element /= static_cast<double>(count);
      parameters.step();
    }
    check(aiacc_allreduce(&loss, &loss, 1, AIACC_FLOAT64, AIACC_SUM, workers, nullptr, nullptr));
    loss /= static_cast<double>(train);
    if (rank == 0 && epoch % 5 == 0) std::printf("epoch %2zu  loss %.8f\n", epoch, loss);
  }
  parameters.pull();  // all workers are done, so all have the same now
  std::int64_t correct = 0;
  const digits::Share mine(tests, rank, size);
  for (std::size_t i = mine.begin; i < mine.end; ++i) {
    correct += network.forward(parameters.values, images[train + i]).correct ? 1 : 0;
  }
  check(aiacc_allreduce(&correct, &correct, 1, AIACC_INT64, AIACC_SUM, workers, nullptr, nullptr));
  parameters.close();
  if (rank != 0) return;
  std::printf("final: %d rank%s, loss %.10f, test accuracy %.2f %%\n", size, size == 1 ? "" : "s", loss,
              100.0 * static_cast<double>(correct) / static_cast<double>(tests));
}

// -1: none.
int mode_of(const std::string& word) {
  if (word == "sync") return AIACC_KV_SYNC;
  if (word == "async") return AIACC_KV_ASYNC;
  return word == "bounded" ? AIACC_KV_BOUNDED : -1;
}

}  // namespace

int main(int argc, char** argv) try {
  const int mode = argc == 3 ? mode_of(argv[2]) : -1;
  if (mode < 0) {
    std::fputs("usage: kvstore IMAGES sync|async|bounded\n", stderr);
    return 2;
  }
  check(aiacc_init(nullptr));
  run(argv[1], mode);
  check(aiacc_finalize());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "kvstore: %s\n", error.what());
  return 1;
}
