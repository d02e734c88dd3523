// aiacc for Caffe: the ranks of a job train one model, each with its part of every batch. Header only, for C++11 and newer; it
// needs Caffe's headers, and the program is linked with Caffe and libaiacc. docs/caffe.md has a whole program.
//
//   caffe::SolverParameter param;
//   caffe::ReadSolverParamsFromTextFileOrDie("solver.prototxt", &param);
//   aiacc::caffe_init(&param);
//   std::unique_ptr<caffe::Solver<float>> solver(caffe::SolverRegistry<float>::CreateSolver(param));
//   aiacc::CaffeSync<float> sync(*solver);
//   sync.solve();
//   aiacc_finalize();
//
// Caffe 1.0, and older ones whose solver has callbacks, as forks of 2016 do. These lack callbacks of the net and ranks: gradients are
// reduced after backward, and the caller divides the data.
//
// A step of the solver has the mean of the gradients of all ranks: ranks with n records each do what one rank does with the
// records of all of them. With iter_size above 1, gradients are summed on each rank first and reduced once, after the last pass.
//
// Errors are Caffe's: LOG(FATAL) with one sentence.
#ifndef AIACC_CAFFE_HPP
#define AIACC_CAFFE_HPP

#include <aiacc/aiacc.h>
#include <aiacc/gradient.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <caffe/caffe.hpp>

namespace aiacc {
inline namespace v0 {

// Who divides the records among the ranks.
enum class CaffeData {
  kShard,  // Caffe's data layers that know ranks (Data, HDF5Data): rank r of n takes each n-th record, from the r-th on
  kAsGiven  // the caller: each rank's layers have all records of their source, which is another one on each rank
};

namespace caffe_detail {

inline void check(aiacc_status_t status) {
  if (status != AIACC_OK) LOG(FATAL) << "aiacc: " << aiacc_last_error();
}

inline int number(aiacc_status_t (*get)(aiacc_group_t, int *)) {
  int value = 0;
  check(get(AIACC_WORLD, &value));
  return value;
}

inline aiacc_dtype_t dtype(float) { return AIACC_FLOAT32; }
inline aiacc_dtype_t dtype(double) { return AIACC_FLOAT64; }

// The root's text on all ranks.
inline std::string broadcast(std::string text, int root) {
  std::uint64_t length = text.size();
  check(aiacc_broadcast(&length, 1, AIACC_UINT64, root, AIACC_WORLD, nullptr, nullptr));
  text.resize(length);
  if (length != 0) check(aiacc_broadcast(&text[0], length, AIACC_UINT8, root, AIACC_WORLD, nullptr, nullptr));
  return text;
}

// Ends all ranks with the same sentence if one of them has other lines than rank 0. Collective.
inline void require_equal_lines(const std::vector<std::string> &lines) {
  const int rank = number(aiacc_rank), size = number(aiacc_size);
  std::string mine, line, difference;
  for (const std::string &each : lines) mine += each + "\n";
  std::istringstream theirs(broadcast(mine, 0));
  std::size_t same = 0;
  while (std::getline(theirs, line) && same < lines.size() && line == lines[same]) ++same;
  if (theirs || same < lines.size()) {
    difference = "ranks 0 and " + std::to_string(rank) + " have different models: rank 0 has " +
                 (theirs ? line : "no more parameters") + ", rank " + std::to_string(rank) + " has " +
                 (same < lines.size() ? lines[same] : "no more parameters");
  }
  std::int32_t first = difference.empty() ? size : rank;
  check(aiacc_allreduce(&first, &first, 1, AIACC_INT32, AIACC_MIN, AIACC_WORLD, nullptr, nullptr));
  if (first < size) LOG(FATAL) << "aiacc: " << broadcast(difference, first);
}

// What Caffe 1.0 has and older ones lack. Of two functions the one with `int` is taken where Caffe has what it calls.
template <typename Caffe>
auto set_ranks(int rank, int size, int) -> decltype(Caffe::set_solver_rank(rank), Caffe::set_multiprocess(true), true) {
  Caffe::set_solver_count(size);
  Caffe::set_solver_rank(rank);
  Caffe::set_multiprocess(true);
  return true;
}
template <typename Caffe>
bool set_ranks(int, int, long) {
  return false;
}

template <typename Param>
auto layer_wise(const Param &param, int) -> decltype(param.layer_wise_reduce()) {
  return param.layer_wise_reduce();
}
template <typename Param>
bool layer_wise(const Param &, long) {
  return true;
}

template <typename T>
struct Always {
  typedef void type;
};
// run(layer) is called after backward of each layer.
template <typename Net, typename = void>
class AfterBackward {
 public:
  void add_to(Net *) {}

 protected:
  virtual void run(int layer) = 0;
};
template <typename Net>
class AfterBackward<Net, typename Always<typename Net::Callback>::type> : public Net::Callback {
 public:
  void add_to(Net *net) { net->add_after_backward(this); }
};

}  // namespace caffe_detail

// Makes this process a rank, and tells Caffe so. Called before the solver is made of `param`, which on other ranks than 0 loses its
// test nets, snapshots and display. Collective.
inline void caffe_init(::caffe::SolverParameter *param, CaffeData data = CaffeData::kShard) {
  if (!aiacc_initialized()) caffe_detail::check(aiacc_init(nullptr));
  const int rank = caffe_detail::number(aiacc_rank), size = caffe_detail::number(aiacc_size);
  const bool caffe_knows = data == CaffeData::kShard && caffe_detail::set_ranks<::caffe::Caffe>(rank, size, 0);
  if (!caffe_knows && param->random_seed() >= 0)
    param->set_random_seed(param->random_seed() + rank);  // as Caffe does itself
  if (rank == 0) return;
  param->clear_test_net();
  param->clear_test_net_param();
  param->clear_test_state();
  param->clear_test_iter();
  param->clear_test_interval();
  param->clear_snapshot();
  param->clear_display();
}

// Keeps the models of all ranks equal: gives each the parameters of rank 0 when it is made, and in each step the mean of all
// gradients. Parameters and gradients move into aiacc's memory, one block for each, where they are reduced in place. With the
// solver's layer_wise_reduce, which is Caffe's default, a layer's gradients are reduced while backward goes on with the layers below.
//
// One for a solver; made by all ranks after the solver (and after snapshots or weights were read, on all ranks), used by the thread
// that runs the solver. The solver and its nets are used no more after it is gone, or after aiacc_finalize.
template <typename Dtype>
class CaffeSync : public ::caffe::Solver<Dtype>::Callback, public caffe_detail::AfterBackward<::caffe::Net<Dtype>> {
 public:
  explicit CaffeSync(::caffe::Solver<Dtype> &solver) : solver_(solver), rank_(caffe_detail::number(aiacc_rank)) {
    find_parameters();
    std::vector<std::string> lines;
    for (const Parameter &one : parameters_) {
      lines.push_back(one.name + " of shape " + one.blob->shape_string() + " of " +
                      (sizeof(Dtype) == sizeof(float) ? "float" : "double"));
    }
    caffe_detail::require_equal_lines(lines);
    share_data();
    share_diffs();
    solver.add_callback(this);
    if (caffe_detail::layer_wise(solver.param(), 0)) this->add_to(solver.net().get());
  }
  ~CaffeSync() {
    aiacc_gradient_free(engine_);
    if (data_ != nullptr) aiacc_mem_free(data_);
  }
  CaffeSync(const CaffeSync &) = delete;
  CaffeSync &operator=(const CaffeSync &) = delete;

  // Trains up to max_iter: solver.Solve() on rank 0, which Caffe permits there only, and the same steps elsewhere.
  void solve() {
    if (rank_ == 0) {
      solver_.Solve();
    } else {
      solver_.Step(solver_.param().max_iter() - solver_.iter());
    }
  }
  // In place of the solver's SetActionFunction, by all ranks, before the first step: asked once in each step, and what any of them wants all
  // do, at the end of that step. They stop, or rank 0 takes a snapshot. A solver's own function would stop ranks at different steps, as a
  // signal comes at any time. After a stop Step() is not called again.
  void set_action_function(::caffe::ActionCallback wanted) {
    if (has_stepped_) LOG(FATAL) << "aiacc: set_action_function() is called before the first step.";
    wanted_ = wanted;
    agrees_ = true;
    solver_.SetActionFunction([this] {
      const ::caffe::SolverAction::Enum agreed = agreed_;
      agreed_ = ::caffe::SolverAction::NONE;
      return agreed;
    });
  }
  // For aiacc_gradient_get_stats.
  aiacc_gradient_t engine() const { return engine_; }

 protected:
  void on_start() override {
    pass_ = 0;
    submitted_ = 0;
  }
  void on_gradients_ready() override {
    pass_ = kOutside;
    submit_from(0);
    const aiacc_status_t status = aiacc_gradient_wait(engine_);
    if (status == AIACC_ERR_NOT_FINITE) {
      LOG(WARNING) << "aiacc: " << aiacc_last_error() << ". All ranks make this step with gradients of 0.";
      solver_.net()->ClearParamDiffs();
    } else {
      caffe_detail::check(status);
    }
    if (!has_stepped_) see_that_all_agree_on_actions();
    has_stepped_ = true;
    if (agrees_) agree_on_action();
  }
  // After backward of a layer.
  void run(int layer) override {
    if (pass_ == kOutside) return;
    if (pass_ + 1 == solver_.param().iter_size()) submit_from(layer);
    if (layer == 0) ++pass_;
  }

 private:
  struct Parameter {
    ::caffe::Blob<Dtype> *blob;
    std::string name;
    int layer;  // whose backward is the last one that adds to the gradient
    std::uint32_t tensor;
    void *slot;
  };
  static const int kOutside = -1;

  static std::size_t aligned(std::size_t count) { return (count + 15) / 16 * 16; }  // elements

  // In the order in which backward finishes them. Layers may share a parameter: backward of the lowest one ends its gradient.
  void find_parameters() {
    const ::caffe::Net<Dtype> &net = *solver_.net();
    std::map<const void *, std::size_t> ids;  // of the memory of gradients
    parameters_.resize(net.learnable_params().size());
    for (std::size_t id = 0; id < parameters_.size(); ++id) {
      parameters_[id].blob = net.learnable_params()[id];
      ids[parameters_[id].blob->diff().get()] = id;
    }
    for (int layer = static_cast<int>(net.layers().size()) - 1; layer >= 0; --layer) {
      const auto &blobs = net.layers()[layer]->blobs();
      for (std::size_t k = 0; k < blobs.size(); ++k) {
        const auto found = ids.find(blobs[k]->diff().get());
        if (found == ids.end()) continue;
        parameters_[found->second].layer = layer;
        parameters_[found->second].name =
            "parameter " + std::to_string(k) + " of layer '" + net.layer_names()[layer] + "'";
      }
    }
    std::stable_sort(parameters_.begin(), parameters_.end(),
                     [](const Parameter &a, const Parameter &b) { return a.layer > b.layer; });
  }
  void share_data() {
    std::size_t count = 0;
    for (const Parameter &one : parameters_) count += aligned(one.blob->count());
    if (count == 0) return;
    caffe_detail::check(aiacc_mem_alloc(AIACC_NULL, count * sizeof(Dtype), &data_));
    Dtype *place = static_cast<Dtype *>(data_);
    std::fill(place, place + count, Dtype(0));
    for (const Parameter &one : parameters_) {
      ::caffe::caffe_copy(one.blob->count(), one.blob->cpu_data(), place);
      one.blob->data()->set_cpu_data(place);
      place += aligned(one.blob->count());
    }
    caffe_detail::check(aiacc_broadcast(data_, count, caffe_detail::dtype(Dtype()), 0, AIACC_WORLD, nullptr, nullptr));
  }
  void share_diffs() {
    aiacc_gradient_attr_t attr{};
    attr.size = sizeof attr;
    attr.name = "caffe";
    caffe_detail::check(aiacc_gradient_create(AIACC_WORLD, &attr, &engine_));
    for (Parameter &one : parameters_) {
      aiacc_tensor_t tensor{};
      tensor.size = sizeof tensor;
      tensor.name = one.name.c_str();
      tensor.count = one.blob->count();
      tensor.dtype = caffe_detail::dtype(Dtype());
      tensor.op = AIACC_AVG;
      caffe_detail::check(aiacc_gradient_add(engine_, 1, &tensor, &one.tensor));
      caffe_detail::check(aiacc_gradient_memory(engine_, one.tensor, &one.slot));
      if (one.slot != nullptr) one.blob->diff()->set_cpu_data(one.slot);
    }
  }
  void see_that_all_agree_on_actions() {
    std::int32_t any[] = {agrees_, !agrees_};
    caffe_detail::check(aiacc_allreduce(any, any, 2, AIACC_INT32, AIACC_MAX, AIACC_WORLD, nullptr, nullptr));
    if (any[0] != 0 && any[1] != 0) {
      LOG(FATAL) << "aiacc: set_action_function() was called by some ranks only: all call it, or none. This one has"
                 << (agrees_ ? "." : " not.");
    }
  }
  void agree_on_action() {
    namespace SolverAction = ::caffe::SolverAction;
    const SolverAction::Enum mine = wanted_ ? wanted_() : SolverAction::NONE;
    std::int32_t any[] = {mine == SolverAction::STOP, mine == SolverAction::SNAPSHOT};
    caffe_detail::check(aiacc_allreduce(any, any, 2, AIACC_INT32, AIACC_MAX, AIACC_WORLD, nullptr, nullptr));
    if (any[0] != 0) {
      agreed_ = SolverAction::STOP;
    } else if (any[1] != 0 && rank_ == 0) {
      agreed_ = SolverAction::SNAPSHOT;
    }
  }
  // All that is not submitted yet and is complete after backward of this layer.
  void submit_from(int layer) {
    for (; submitted_ < parameters_.size() && parameters_[submitted_].layer >= layer; ++submitted_) {
      const Parameter &one = parameters_[submitted_];
      Dtype *diff = one.blob->mutable_cpu_diff();  // elsewhere than in the slot if the net was reshaped
      void *given = diff == one.slot ? nullptr : diff;
      caffe_detail::check(aiacc_gradient_submit(engine_, one.tensor, given, given, nullptr));
    }
  }

  ::caffe::Solver<Dtype> &solver_;
  int rank_;
  std::vector<Parameter> parameters_;
  void *data_ = nullptr;
  aiacc_gradient_t engine_ = AIACC_NULL;
  int pass_ = kOutside;        // of iter_size, in a step of the solver
  std::size_t submitted_ = 0;  // parameters, in this step
  bool has_stepped_ = false;
  bool agrees_ = false;  // on actions, with all ranks
  ::caffe::ActionCallback wanted_;
  ::caffe::SolverAction::Enum agreed_ = ::caffe::SolverAction::NONE;
};

}  // namespace v0
}  // namespace aiacc

#endif
