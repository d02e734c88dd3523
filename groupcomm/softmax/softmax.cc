#include "groupcomm/softmax/softmax.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "base/data/reduction.h"

namespace aiacc::softmax {
namespace {

// Numbers of type T travel; everything is computed in double. What the largest class adds to the sum, about 1, is left out of it, so
// that a row that is nearly certain of a class keeps the digits of the others' share.
template <class T>
struct Row {
  T most = -std::numeric_limits<T>::infinity();  // m: the largest logit, rounded down: its exponential is at least 1
  T rest = -1;                                   // z - 1
  T target = kElsewhere;                         // t - m; infinite where the row's class is on another rank

  static constexpr T kElsewhere = std::numeric_limits<T>::infinity();
};

template <class T>
T rounded_down(double number) noexcept {
  const T near = static_cast<T>(number);
  return static_cast<double>(near) > number ? std::nextafter(near, -std::numeric_limits<T>::infinity()) : near;
}

// The row's sum, of exponentials shifted by `most` in place of its own maximum.
template <class T>
double sum_by(const Row<T>& row, double most) noexcept {
  const double sum = 1 + static_cast<double>(row.rest);
  return sum == 0 ? 0
                  : sum * std::exp(static_cast<double>(row.most) - most);  // without classes the maximum is infinite
}

template <class T>
double target_by(const Row<T>& row, double most) noexcept {
  return static_cast<double>(row.target) + (static_cast<double>(row.most) - most);
}

// Records in a message have no alignment of their own.
template <class T>
void merge(void* inout, const void* in, std::size_t rows, void*) {
  auto* into = static_cast<std::byte*>(inout);
  const auto* from = static_cast<const std::byte*>(in);
  for (; rows > 0; --rows, into += sizeof(Row<T>), from += sizeof(Row<T>)) {
    Row<T> row, other;
    std::memcpy(&row, into, sizeof row);
    std::memcpy(&other, from, sizeof other);
    const Row<T>& larger = row.most >= other.most ? row : other;
    const Row<T>& smaller = row.most >= other.most ? other : row;
    const auto most = static_cast<double>(larger.most);
    Row<T> merged;
    merged.most = larger.most;
    merged.rest = static_cast<T>(static_cast<double>(larger.rest) + sum_by(smaller, most));
    for (const Row<T>* one : {&row, &other}) {
      if (one->target != Row<T>::kElsewhere) merged.target = static_cast<T>(target_by(*one, most));
    }
    std::memcpy(into, &merged, sizeof merged);
  }
}

struct Logit {
  double value;
  double slope;  // of it in the number that was given
};

Logit of_own_class(const Shard& shard, double given) noexcept {
  if (shard.margin == Margin::kNone) return {given * shard.scale, shard.scale};
  const double cosine = std::clamp(given, -1.0, 1.0);
  if (shard.margin == Margin::kCos) return {(cosine - shard.size) * shard.scale, shard.scale};
  const double angle = std::acos(cosine) + shard.size;
  if (angle > M_PI) return {(cosine - shard.size * std::sin(shard.size)) * shard.scale, shard.scale};
  constexpr double kLeastSine = 1e-6;  // the slope has a pole at the angle 0
  const double sine = std::max(std::sqrt((1 - cosine) * (1 + cosine)), kLeastSine);
  return {std::cos(angle) * shard.scale, shard.scale * std::sin(angle) / sine};
}

double of_other_class(const Shard& shard, double given) noexcept {
  return (shard.margin == Margin::kNone ? given : std::clamp(given, -1.0, 1.0)) * shard.scale;
}

template <class T>
Row<T> row_of(const Shard& shard, const T* logits, std::size_t own) noexcept {
  Row<T> row;
  const Logit target = own < shard.classes ? of_own_class(shard, static_cast<double>(logits[own])) : Logit{0, 0};
  const auto at = [&](std::size_t c) {
    return c == own ? target.value : of_other_class(shard, static_cast<double>(logits[c]));
  };
  std::size_t largest = 0;
  double most = -std::numeric_limits<double>::infinity();
  for (std::size_t c = 0; c < shard.classes; ++c) {
    const double logit = at(c);
    if (!(logit > most)) continue;
    most = logit;
    largest = c;
  }
  row.most = rounded_down<T>(most);
  const auto shift = static_cast<double>(row.most);
  double rest = shard.classes == 0 ? -1 : 0;
  for (std::size_t c = 0; c < shard.classes; ++c) {
    rest += c == largest ? std::expm1(at(c) - shift) : std::exp(at(c) - shift);
  }
  row.rest = static_cast<T>(rest);
  if (own < shard.classes) row.target = static_cast<T>(target.value - shift);
  return row;
}

template <class T>
void to_gradient(const Shard& shard, T* logits, std::size_t own, const Row<T>& row) noexcept {
  const auto most = static_cast<double>(row.most), rest = static_cast<double>(row.rest);
  const double sum = 1 + rest;
  for (std::size_t c = 0; c < shard.classes; ++c) {
    const auto given = static_cast<double>(logits[c]);
    const Logit logit = c == own ? of_own_class(shard, given) : Logit{of_other_class(shard, given), shard.scale};
    const double over = logit.value - most;
    // exp(over) / sum, less 1 for the own class: without a difference of two numbers near 1.
    const double share = (c == own ? std::expm1(over) - rest : std::exp(over)) / sum;
    logits[c] = static_cast<T>(share * logit.slope * shard.factor);
  }
}

template <class T>
class LossOf final : public Loss {
 public:
  LossOf(const Shard& shard, T* logits, const std::int64_t* labels, double* losses)
      : shard_(shard), logits_(logits), labels_(labels), losses_(losses), rows_(shard.rows) {
    for (std::size_t i = 0; i < shard.rows; ++i) rows_[i] = row_of(shard, row(i), column_of(shard, labels[i]));
    merging_.function = merge<T>;
    merging_.record_bytes = sizeof(Row<T>);
    merging_.name = "softmax";
  }

  bool exchanges(int ranks) const noexcept override { return ranks > 1 && !rows_.empty(); }
  Call call() const noexcept override {
    Call call;
    call.kind = Collective::kAllreduce;
    call.count = rows_.size();
    call.reduction.type = DType::kRecord;
    call.reduction.user = &merging_;
    return call;
  }
  Buffer message() noexcept override {
    Buffer buffer;
    buffer.data = reinterpret_cast<std::byte*>(rows_.data());
    buffer.bytes = rows_.size() * sizeof(Row<T>);
    return buffer;
  }
  void finish() noexcept override {
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const Row<T>& of = rows_[i];
      losses_[i] = of.target == Row<T>::kElsewhere
                       ? std::numeric_limits<double>::infinity()  // no rank has the class
                       : std::log1p(static_cast<double>(of.rest)) - static_cast<double>(of.target);
      to_gradient(shard_, row(i), column_of(shard_, labels_[i]), rows_[i]);
    }
  }

 private:
  T* row(std::size_t i) const noexcept { return logits_ + i * shard_.classes; }

  const Shard shard_;
  T* const logits_;
  const std::int64_t* const labels_;
  double* const losses_;
  std::vector<Row<T>> rows_;
  UserOp merging_;
};

// SplitMix64 (Steele, Lea and Flood 2014): a key of a class that depends on nothing but the seed and its number.
std::uint64_t key_of(std::uint64_t seed, std::uint64_t number) noexcept {
  std::uint64_t z = seed + (number + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

std::size_t column_of(const Shard& shard, std::int64_t label) noexcept {
  if (shard.ids == nullptr) {
    const auto column = static_cast<std::uint64_t>(label) - static_cast<std::uint64_t>(shard.first_class);
    return column < shard.classes ? column : shard.classes;
  }
  const std::int64_t* const end = shard.ids + shard.classes;
  const std::int64_t* const found = std::lower_bound(shard.ids, end, label);
  return found != end && *found == label ? static_cast<std::size_t>(found - shard.ids) : shard.classes;
}

std::unique_ptr<Loss> Loss::begin(const Shard& shard, void* logits, const std::int64_t* labels, double* losses) {
  if (shard.type == DType::kFloat64)
    return std::make_unique<LossOf<double>>(shard, static_cast<double*>(logits), labels, losses);
  return std::make_unique<LossOf<float>>(shard, static_cast<float*>(logits), labels, losses);
}

void loss(Group& group, const Shard& shard, void* logits, const std::int64_t* labels, double* losses,
          const CallOptions* options) {
  const std::unique_ptr<Loss> begun = Loss::begin(shard, logits, labels, losses);
  if (begun->exchanges(group.size())) group.run(begun->call(), begun->message(), begun->message(), options);
  begun->finish();
}

std::size_t sample(std::int64_t first_class, std::size_t classes, const std::int64_t* labels, std::size_t rows,
                   std::size_t wanted, std::uint64_t seed, std::int64_t* ids) {
  Shard whole;
  whole.classes = classes;
  whole.first_class = first_class;
  std::vector<bool> is_label(classes);
  std::size_t picked = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    const std::size_t column = column_of(whole, labels[i]);
    if (column == classes || is_label[column]) continue;
    is_label[column] = true;
    ++picked;
  }
  std::vector<std::pair<std::uint64_t, std::size_t>> others;
  for (std::size_t column = 0; column < classes; ++column) {
    if (!is_label[column]) others.emplace_back(key_of(seed, static_cast<std::uint64_t>(first_class) + column), column);
  }
  const std::size_t more = std::min(others.size(), wanted > picked ? wanted - picked : 0);
  std::nth_element(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(more), others.end());
  for (std::size_t i = 0; i < more; ++i) is_label[others[i].second] = true;
  std::size_t n = 0;
  for (std::size_t column = 0; column < classes; ++column) {
    if (is_label[column]) ids[n++] = first_class + static_cast<std::int64_t>(column);
  }
  return n;
}

}  // namespace aiacc::softmax
