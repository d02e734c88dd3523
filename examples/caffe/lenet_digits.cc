// LeNet learns handwritten digits on all ranks of a job, by Caffe. Each rank takes its share of every batch, so the run is the
// same whatever the number of ranks. docs/caffe.md says how to build and start it.
#include <aiacc/aiacc_caffe.hpp>

#include <caffe/util/signal_handler.h>
#include <caffe/layers/memory_data_layer.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "images.h"

namespace {

// What a MemoryData layer takes; it does not copy them.
struct Records {
  std::vector<float> pixels, labels;
  void add(const digits::Image& image) {
    pixels.insert(pixels.end(), std::begin(image.pixels), std::end(image.pixels));
    labels.push_back(static_cast<float>(image.digit));
  }
  void give_to(const caffe::Net<float>& net) {
    auto* layer = dynamic_cast<caffe::MemoryDataLayer<float>*>(net.layers()[0].get());
    CHECK(layer != nullptr) << "the first layer is no MemoryData";
    layer->Reset(pixels.data(), labels.data(), static_cast<int>(labels.size()));
  }
};

// The images in an order that is the same on all ranks.
std::vector<digits::Image> shuffled(const char* path) {
  std::vector<digits::Image> images;
  try {
    images = digits::read_images(path);
  } catch (const std::runtime_error& error) {
    LOG(FATAL) << error.what();
  }
  std::mt19937 random(1);
  std::shuffle(images.begin(), images.end(), random);
  return images;
}

caffe::MemoryDataParameter* data_of(caffe::NetParameter* net, caffe::Phase phase) {
  for (caffe::LayerParameter& layer : *net->mutable_layer()) {
    if (layer.has_memory_data_param() && layer.include_size() == 1 && layer.include(0).phase() == phase) {
      return layer.mutable_memory_data_param();
    }
  }
  LOG(FATAL) << "the net has no MemoryData layer for phase " << caffe::Phase_Name(phase);
  return nullptr;
}

void print_result(caffe::Solver<float>* solver) {
  caffe::Net<float>& net = *solver->test_nets().at(0);
  net.ShareTrainedLayersWith(solver->net().get());
  float loss = 0;
  net.Forward(&loss);
  std::printf("final: loss %.6f, test accuracy %.2f %%\n", loss, 100 * net.blob_by_name("accuracy")->cpu_data()[0]);
}

}  // namespace

int main(int argc, char** argv) {
  FLAGS_logtostderr = true;
  FLAGS_minloglevel = google::WARNING;
  google::InitGoogleLogging(argv[0]);
  CHECK_EQ(argc, 3) << "usage: lenet_digits SOLVER IMAGES";
  caffe::SolverParameter param;
  caffe::ReadSolverParamsFromTextFileOrDie(argv[1], &param);
  caffe::NetParameter net;
  caffe::ReadNetParamsFromTextFileOrDie(param.net(), &net);
  param.clear_net();
  aiacc::caffe_init(&param);
  int rank = 0, size = 1;
  aiacc_rank(AIACC_WORLD, &rank);
  aiacc_size(AIACC_WORLD, &size);

  const auto batch = static_cast<int>(data_of(&net, caffe::TRAIN)->batch_size());
  CHECK_EQ(batch % (size * param.iter_size()), 0)
      << "a batch of " << batch << " does not divide among " << size << " ranks and " << param.iter_size() << " passes";
  data_of(&net, caffe::TRAIN)->set_batch_size(batch / size / param.iter_size());
  *param.mutable_net_param() = net;

  const std::vector<digits::Image> images = shuffled(argv[2]);
  const std::size_t tests = data_of(&net, caffe::TEST)->batch_size();
  CHECK_GT(images.size(), tests + batch) << argv[2] << " has too few images";
  Records training, testing;
  for (std::size_t first = 0; first + batch <= images.size() - tests; first += batch) {
    const digits::Share mine(batch, rank, size);
    for (std::size_t i = first + mine.begin; i < first + mine.end; ++i) training.add(images[i]);
  }
  for (std::size_t i = images.size() - tests; i < images.size(); ++i) testing.add(images[i]);

  std::unique_ptr<caffe::Solver<float>> solver(caffe::SolverRegistry<float>::CreateSolver(param));
  training.give_to(*solver->net());
  for (const auto& test_net : solver->test_nets()) testing.give_to(*test_net);
  {
    aiacc::CaffeSync<float> sync(*solver);
    caffe::SignalHandler signals(caffe::SolverAction::STOP,
                                 caffe::SolverAction::SNAPSHOT);  // as in Caffe's own program
    sync.set_action_function(signals.GetActionFunction());
    sync.solve();
    if (rank == 0) print_result(solver.get());
  }
  return aiacc_finalize() == AIACC_OK ? 0 : 1;
}
