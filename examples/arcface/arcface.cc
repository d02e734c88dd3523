// A classifier with an angular margin whose classes are split over the ranks, as those of face recognition are (ArcFace: Deng et
// al., CVPR 2019; the split: An et al., "Partial FC", 2020), on handwritten digits. The network below it is data-parallel: each rank
// has a copy and its share of every batch. Of the last layer each rank has the weights of its own classes, which are never
// exchanged; features, and gradients of features, are.
#include <aiacc/aiacc.h>
#include <aiacc/softmax.h>

#include <cmath>
#include <cstdio>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "images.h"
#include "network.h"

namespace {

using Values = std::vector<double>;

constexpr std::size_t kFeatures = 32;
constexpr std::size_t kBatch = 64;  // over all ranks
constexpr std::size_t kEpochs = 20;
constexpr double kMargin = 0.2;  // radians
constexpr double kScale = 16;
constexpr double kRate = 0.2;

void check(aiacc_status_t status) {
  if (status != AIACC_OK) throw std::runtime_error(aiacc_last_error());
}

double dot(const double* a, const double* b, std::size_t n) { return std::inner_product(a, a + n, b, 0.0); }

// Rows of length kFeatures, divided by their norms, which are kept for the way back.
struct Normalised {
  explicit Normalised(const Values& rows) : directions(rows), norms(rows.size() / kFeatures) {
    for (std::size_t row = 0; row < norms.size(); ++row) {
      double* const values = &directions[row * kFeatures];
      norms[row] = std::sqrt(dot(values, values, kFeatures));
      for (std::size_t k = 0; k < kFeatures; ++k) values[k] /= norms[row];
    }
  }
  // The gradient of the directions becomes that of the rows.
  void backward(Values& gradient) const {
    for (std::size_t row = 0; row < norms.size(); ++row) {
      const double* const along = &directions[row * kFeatures];
      double* const values = &gradient[row * kFeatures];
      const double radial = dot(values, along, kFeatures);
      for (std::size_t k = 0; k < kFeatures; ++k) values[k] = (values[k] - radial * along[k]) / norms[row];
    }
  }
  const double* row(std::size_t at) const { return &directions[at * kFeatures]; }
  Values directions, norms;
};

// One layer with tanh, on every rank; its last column is the bias.
class Backbone {
 public:
  static constexpr std::size_t kColumns = digits::kPixels + 1;
  explicit Backbone(digits::Random& random) : weights_(kFeatures * kColumns) {
    for (double& weight : weights_) weight = random.normal() / std::sqrt(double{digits::kPixels});
  }

  Values forward(const std::vector<const digits::Image*>& images) const {
    Values features;
    for (const digits::Image* image : images) {
      for (std::size_t k = 0; k < kFeatures; ++k) {
        const double* const row = &weights_[k * kColumns];
        features.push_back(std::tanh(dot(row, image->pixels, digits::kPixels) + row[digits::kPixels]));
      }
    }
    return features;
  }

  // The gradient over all ranks: each has that of its own images.
  void learn(const std::vector<const digits::Image*>& images, const Values& features, const Values& gradient) {
    Values sums(weights_.size());
    for (std::size_t i = 0; i < images.size(); ++i) {
      for (std::size_t k = 0; k < kFeatures; ++k) {
        const double feature = features[i * kFeatures + k];
        const double slope = gradient[i * kFeatures + k] * (1 - feature * feature);
        for (std::size_t p = 0; p < digits::kPixels; ++p) sums[k * kColumns + p] += slope * images[i]->pixels[p];
        sums[k * kColumns + digits::kPixels] += slope;
      }
    }
    check(aiacc_allreduce(sums.data(), sums.data(), sums.size(), AIACC_FLOAT64, AIACC_SUM, AIACC_WORLD, nullptr,
                          nullptr));
    for (std::size_t i = 0; i < weights_.size(); ++i) weights_[i] -= kRate * sums[i];
  }

 private:
  Values weights_;
};

// The classes of this rank.
class Head {
 public:
  explicit Head(digits::Random& random) {
    check(aiacc_softmax_split(digits::kClasses, AIACC_WORLD, &first_, &classes_));
    Values all(digits::kClasses *
               kFeatures);  // drawn for all classes, so that the run does not depend on the number of ranks
    for (double& weight : all) weight = random.normal();
    const auto begin = all.begin() + first_ * static_cast<std::ptrdiff_t>(kFeatures);
    weights_.assign(begin, begin + static_cast<std::ptrdiff_t>(classes_ * kFeatures));
  }

  // Learns from rows of all ranks. Returns the sum of their losses, and sets *gradient to that of the features, of which this rank
  // knows the part of its classes.
  double learn(const Values& features, const std::vector<std::int64_t>& labels, Values* gradient) {
    const std::size_t rows = labels.size();
    const Normalised rows_of(features), classes_of(weights_);
    Values logits = cosines(rows_of, classes_of, rows), losses(rows);
    aiacc_softmax_shard_t shard{};
    shard.size = sizeof shard;
    shard.rows = rows;
    shard.all_classes = digits::kClasses;
    shard.classes = classes_;
    shard.first_class = first_;
    shard.dtype = AIACC_FLOAT64;
    shard.margin_kind = AIACC_MARGIN_ARC;
    shard.margin = kMargin;
    shard.scale = kScale;
    check(aiacc_softmax_loss(&shard, logits.data(), labels.data(), losses.data(), AIACC_WORLD, nullptr));
    gradient->assign(features.size(), 0.0);
    Values of_weights(weights_.size());
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t own = 0; own < classes_; ++own) {
        const double slope = logits[row * classes_ + own];
        for (std::size_t k = 0; k < kFeatures; ++k) {
          (*gradient)[row * kFeatures + k] += slope * classes_of.row(own)[k];
          of_weights[own * kFeatures + k] += slope * rows_of.row(row)[k];
        }
      }
    }
    rows_of.backward(*gradient);  // linear in the gradient: the ranks' parts may be summed afterwards
    classes_of.backward(of_weights);
    for (std::size_t i = 0; i < weights_.size(); ++i) weights_[i] -= kRate * of_weights[i];
    return std::accumulate(losses.begin(), losses.end(), 0.0);
  }

  // How many rows have no class with a greater cosine than their own.
  std::size_t correct(const Values& features, const std::vector<std::int64_t>& labels) const {
    const std::size_t rows = labels.size();
    const Values logits = cosines(Normalised(features), Normalised(weights_), rows);
    Values own(rows, -2.0);  // of the row's class, known to one rank
    for (std::size_t row = 0; row < rows; ++row) {
      const std::int64_t at = labels[row] - first_;
      if (at >= 0 && at < static_cast<std::int64_t>(classes_))
        own[row] = logits[row * classes_ + static_cast<std::size_t>(at)];
    }
    check(aiacc_allreduce(own.data(), own.data(), rows, AIACC_FLOAT64, AIACC_MAX, AIACC_WORLD, nullptr, nullptr));
    std::vector<std::int32_t> greater(rows);
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t at = 0; at < classes_; ++at) greater[row] += logits[row * classes_ + at] > own[row] ? 1 : 0;
    }
    check(aiacc_allreduce(greater.data(), greater.data(), rows, AIACC_INT32, AIACC_SUM, AIACC_WORLD, nullptr, nullptr));
    std::size_t right = 0;
    for (const std::int32_t count : greater) right += count == 0 ? 1 : 0;
    return right;
  }

 private:
  Values cosines(const Normalised& rows_of, const Normalised& classes_of, std::size_t rows) const {
    Values logits;
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t own = 0; own < classes_; ++own) {
        logits.push_back(dot(rows_of.row(row), classes_of.row(own), kFeatures));
      }
    }
    return logits;
  }

  std::int64_t first_ = 0;
  std::size_t classes_ = 0;
  Values weights_;
};

// A batch: this rank's images, and the features and labels of all ranks.
struct Batch {
  Batch(const Backbone& backbone, const std::vector<digits::Image>& images, const std::size_t* order,
        std::size_t count) {
    int rank = 0, size = 0;
    check(aiacc_rank(AIACC_WORLD, &rank));
    check(aiacc_size(AIACC_WORLD, &size));
    for (int of = 0; of < size; ++of) {
      const digits::Share share(count, of, size);
      lengths.push_back((share.end - share.begin) * kFeatures);
    }
    const digits::Share share(count, rank, size);
    for (std::size_t i = share.begin; i < share.end; ++i) mine.push_back(&images[order[i]]);
    for (std::size_t i = 0; i < count; ++i) labels.push_back(static_cast<std::int64_t>(images[order[i]].digit));
    own_features = backbone.forward(mine);
    features.resize(count * kFeatures);
    check(aiacc_allgatherv(own_features.data(), own_features.size(), features.data(), lengths.data(), nullptr,
                           AIACC_FLOAT64, AIACC_WORLD, nullptr, nullptr));
  }
  std::vector<const digits::Image*> mine;
  std::vector<std::size_t> lengths;  // of each rank's features
  std::vector<std::int64_t> labels;
  Values own_features, features;
};

void run(const std::string& data) {
  int rank = 0, size = 0;
  check(aiacc_rank(AIACC_WORLD, &rank));
  check(aiacc_size(AIACC_WORLD, &size));
  std::vector<digits::Image> images = digits::read_images(data);
  digits::Random random(1);  // equal on all ranks
  random.shuffle(std::span(images));
  const std::size_t train = images.size() * 4 / 5, tests = images.size() - train;
  Backbone backbone(random);
  Head head(random);
  std::vector<std::size_t> order(images.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  double loss = 0;
  for (std::size_t epoch = 1; epoch <= kEpochs; ++epoch) {
    random.shuffle(std::span(order).first(train));
    loss = 0;
    for (std::size_t at = 0; at < train; at += kBatch) {
      const Batch batch(backbone, images, &order[at], std::min(kBatch, train - at));
      Values gradient, own(batch.own_features.size());
      loss += head.learn(batch.features, batch.labels, &gradient);
      check(aiacc_reduce_scatterv(gradient.data(), own.data(), batch.lengths.data(), AIACC_FLOAT64, AIACC_SUM,
                                  AIACC_WORLD, nullptr, nullptr));
      backbone.learn(batch.mine, batch.own_features, own);
    }
    loss /= static_cast<double>(train);
    if (rank == 0 && epoch % 5 == 0) std::printf("epoch %2zu  loss %.8f\n", epoch, loss);
  }
  const Batch test(backbone, images, &order[train], tests);
  const std::size_t correct = head.correct(test.features, test.labels);
  if (rank != 0) return;
  std::printf("final: %d rank%s, loss %.10f, test accuracy %.2f %%\n", size, size == 1 ? "" : "s", loss,
              100.0 * static_cast<double>(correct) / static_cast<double>(tests));
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fputs("usage: arcface IMAGES (digits.txt)\n", stderr);
    return 2;
  }
  check(aiacc_init(nullptr));
  run(argv[1]);
  check(aiacc_finalize());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "arcface: %s\n", error.what());
  return 1;
}
