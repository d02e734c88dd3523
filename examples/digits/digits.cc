// Data-parallel training of a small network on handwritten digits with the C ABI alone. Every rank shuffles with the
// same seed, takes its share of each batch, and sums gradients with all others before each step. So the run does not
// depend on the number of ranks, except for the order in which numbers are added.
#include <aiacc/aiacc.h>
#include <getopt.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "images.h"
#include "network.h"

namespace {

using digits::Image;
using digits::Network;
using digits::Share;
using Clock = std::chrono::steady_clock;

constexpr Clock::duration kProgressInterval = std::chrono::milliseconds(100);

struct Settings {
  std::string data;
  std::string result;     // a file for the final loss and accuracy; empty: none
  bool progress = false;  // show it although standard output is not a terminal: aiaccrun's may be one
  std::size_t epochs = 30;
  std::size_t batch = 64;  // over all ranks
  std::size_t hidden = 64;
  double learning_rate = 0.1;
  double momentum = 0.9;
  std::uint64_t seed = 1;
};

void check(aiacc_status_t status) {
  if (status != AIACC_OK) throw std::runtime_error(aiacc_last_error());
}

// Memory that is shared by the ranks of a host, so that the allreduce works in place without a copy.
class SharedArray {
 public:
  explicit SharedArray(std::size_t count) : count_(count) {
    void* memory = nullptr;
    check(aiacc_mem_alloc(AIACC_NULL, count * sizeof(double), &memory));
    data_ = static_cast<double*>(memory);
    std::memset(data_, 0, count * sizeof(double));
  }
  ~SharedArray() { aiacc_mem_free(data_); }
  SharedArray(const SharedArray&) = delete;
  SharedArray& operator=(const SharedArray&) = delete;
  std::span<double> span() { return {data_, count_}; }

 private:
  std::size_t count_;
  double* data_;
};

class Trainer {
 public:
  Trainer(const Settings& settings, int rank, int size)
      : settings_(settings),
        rank_(rank),
        size_(size),
        images_(digits::read_images(settings.data)),
        network_(settings.hidden),
        parameters_(network_.parameters(), 0.0),
        velocity_(network_.parameters(), 0.0),
        sums_(network_.parameters() + 1) {
    digits::Random random(settings.seed);
    random.shuffle(std::span(images_));
    train_count_ = images_.size() * 4 / 5;
    network_.initialise(parameters_, random.next());
    check(aiacc_broadcast(parameters_.data(), parameters_.size(), AIACC_FLOAT64, 0, AIACC_WORLD, nullptr, nullptr));
    shuffle_seed_ = random.next();
  }

  void run() {
    if (rank_ == 0) {
      std::printf("%zu training and %zu test images, %zu parameters, %d rank%s, batch %zu\n", train_count_,
                  images_.size() - train_count_, network_.parameters(), size_, size_ == 1 ? "" : "s", settings_.batch);
    }
    double loss = 0, accuracy = 0;
    for (std::size_t epoch = 1; epoch <= settings_.epochs; ++epoch) {
      in_communication_ = {};
      const Clock::time_point begin = Clock::now();
      loss = train(epoch);
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      const double share = std::chrono::duration<double>(in_communication_).count() / seconds;
      accuracy = test();
      if (rank_ == 0) {
        clear_progress();
        std::printf("epoch %2zu  loss %.8f  test accuracy %.2f %%  %8.0f images/s  %4.1f %% in communication\n", epoch,
                    loss, 100 * accuracy, static_cast<double>(train_count_) / seconds, 100 * share);
        std::fflush(stdout);
      }
    }
    if (rank_ == 0) {
      std::printf("final: loss %.10f, test accuracy %.2f %%\n", loss, 100 * accuracy);
      write_result(loss, accuracy);
    }
  }

 private:
  // One pass over the training images; returns the mean of their losses during it.
  double train(std::size_t epoch) {
    std::vector<std::size_t> order(train_count_);
    std::iota(order.begin(), order.end(), std::size_t{0});
    digits::Random random(shuffle_seed_ + epoch);
    random.shuffle(std::span(order));
    // The learning rate falls linearly to a tenth.
    const double progress = static_cast<double>(epoch - 1) / static_cast<double>(settings_.epochs);
    const double rate = settings_.learning_rate * (1.0 - 0.9 * progress);
    double loss = 0;
    for (std::size_t at = 0; at < train_count_; at += settings_.batch) {
      const std::size_t count = std::min(settings_.batch, train_count_ - at);
      loss += step(std::span(order).subspan(at, count), rate);
      show_progress(epoch, at + count);
    }
    return loss / static_cast<double>(train_count_);
  }

  // Learns from one batch over all ranks; returns the sum of its losses.
  double step(std::span<const std::size_t> batch, double rate) {
    const std::size_t parameters = network_.parameters();
    std::span<double> sums = sums_.span();
    std::fill(sums.begin(), sums.end(), 0.0);
    const Share mine(batch.size(), rank_, size_);
    for (std::size_t i = mine.begin; i < mine.end; ++i) {
      sums[parameters] += network_.backward(parameters_, images_[batch[i]], sums.first(parameters)).loss;
    }
    allreduce(sums);
    for (std::size_t p = 0; p < parameters; ++p) {
      velocity_[p] = settings_.momentum * velocity_[p] + sums[p] / static_cast<double>(batch.size());
      parameters_[p] -= rate * velocity_[p];
    }
    return sums[parameters];
  }

  double test() {
    std::span<double> sums = sums_.span();
    std::fill(sums.begin(), sums.end(), 0.0);
    const std::size_t count = images_.size() - train_count_;
    const Share mine(count, rank_, size_);
    for (std::size_t i = mine.begin; i < mine.end; ++i) {
      sums[0] += network_.forward(parameters_, images_[train_count_ + i]).correct ? 1 : 0;
    }
    allreduce(sums.first(1));
    return sums[0] / static_cast<double>(count);
  }

  void allreduce(std::span<double> values) {
    const Clock::time_point begin = Clock::now();
    check(aiacc_allreduce(values.data(), values.data(), values.size(), AIACC_FLOAT64, AIACC_SUM, AIACC_WORLD, nullptr,
                          nullptr));
    in_communication_ += Clock::now() - begin;
  }

  void write_result(double loss, double accuracy) const {
    if (settings_.result.empty()) return;
    std::ofstream file(settings_.result);
    file.precision(17);
    file << loss << ' ' << accuracy << '\n';
    if (!file.flush()) throw std::runtime_error("cannot write " + settings_.result);
  }

  // Progress uses the same stream as the results, so that aiaccrun keeps their order.
  bool shows_progress() const { return rank_ == 0 && (settings_.progress || isatty(STDOUT_FILENO) != 0); }
  void show_progress(std::size_t epoch, std::size_t done) {
    if (!shows_progress() || Clock::now() < next_progress_) return;
    next_progress_ = Clock::now() + kProgressInterval;
    std::printf("\r\033[Kepoch %zu/%zu  %zu/%zu images", epoch, settings_.epochs, done, train_count_);
    std::fflush(stdout);
  }
  void clear_progress() const {
    if (shows_progress()) std::printf("\r\033[K");
  }

  const Settings& settings_;
  int rank_;
  int size_;
  std::vector<Image> images_;
  std::size_t train_count_ = 0;
  Network network_;
  std::vector<double> parameters_;
  std::vector<double> velocity_;
  SharedArray sums_;  // gradients, then the loss
  std::uint64_t shuffle_seed_ = 0;
  Clock::duration in_communication_{};
  Clock::time_point next_progress_{};
};

constexpr const char* kHelp =
    "usage: aiacc-digits [options]\n"
    "  --data FILE           images (default: those installed with this program)\n"
    "  --epochs N            passes over the training images (30)\n"
    "  --batch N             images a step, over all ranks (64)\n"
    "  --hidden N            hidden units (64)\n"
    "  --learning-rate X     of the first epoch; falls to a tenth (0.1)\n"
    "  --seed N              of split, start and order (1)\n"
    "  --result FILE         write the final loss and accuracy there\n"
    "  --progress            show progress also when standard output is no terminal\n"
    "  --help                this text\n";

std::size_t positive(const char* option, const char* text) {
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || value <= 0) {
    throw std::invalid_argument(std::string(option) + " takes a whole number above 0, not \"" + text + "\"");
  }
  return static_cast<std::size_t>(value);
}

double positive_real(const char* option, const char* text) {
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (end == text || *end != '\0' || !(value > 0)) {
    throw std::invalid_argument(std::string(option) + " takes a number above 0, not \"" + text + "\"");
  }
  return value;
}

// share/aiacc beside the program's bin directory, wherever the tree was installed or moved to.
std::string installed_data() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "share/aiacc/digits.txt";
}

// False if --help was given.
bool parse(int argc, char** argv, Settings& settings) {
  const option options[] = {
      {"data", required_argument, nullptr, 'd'},   {"epochs", required_argument, nullptr, 'e'},
      {"batch", required_argument, nullptr, 'b'},  {"hidden", required_argument, nullptr, 'n'},
      {"seed", required_argument, nullptr, 's'},   {"learning-rate", required_argument, nullptr, 'r'},
      {"result", required_argument, nullptr, 'o'}, {"progress", no_argument, nullptr, 'p'},
      {"help", no_argument, nullptr, 'h'},         {nullptr, 0, nullptr, 0}};
  settings.data = installed_data();
  for (int option; (option = getopt_long(argc, argv, "h", options, nullptr)) != -1;) {  // NOLINT(concurrency-mt-unsafe)
    switch (option) {
      case 'd': settings.data = optarg; break;
      case 'e': settings.epochs = positive("--epochs", optarg); break;
      case 'b': settings.batch = positive("--batch", optarg); break;
      case 'n': settings.hidden = positive("--hidden", optarg); break;
      case 's': settings.seed = positive("--seed", optarg); break;
      case 'r': settings.learning_rate = positive_real("--learning-rate", optarg); break;
      case 'o': settings.result = optarg; break;
      case 'p': settings.progress = true; break;
      case 'h': return false;
      default: throw std::invalid_argument("see aiacc-digits --help");
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) try {
  Settings settings;
  if (!parse(argc, argv, settings)) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  check(aiacc_init(nullptr));
  int rank = 0, size = 0;
  check(aiacc_rank(AIACC_WORLD, &rank));
  check(aiacc_size(AIACC_WORLD, &size));
  Trainer(settings, rank, size).run();
  check(aiacc_finalize());
  return 0;
} catch (const std::invalid_argument& error) {
  std::fprintf(stderr, "aiacc-digits: %s\n", error.what());
  return 2;
} catch (const std::exception& error) {
  std::fprintf(stderr, "aiacc-digits: %s\n", error.what());
  return 1;
}
