// The softmax over classes that are split over ranks: checks the arguments and calls it.
#include <fmt/format.h>

#include <cmath>
#include <string>

#include "bindings/c/arguments.h"
#include "bindings/c/callbacks.h"
#include "bindings/c/guard.h"
#include "bindings/c/sized.h"
#include "bindings/c/submit.h"
#include "groupcomm/softmax/softmax.h"
#include "include/aiacc/softmax.h"
#include "runtime/group/group.h"

using namespace aiacc;
using namespace aiacc::abi;

namespace {

double finite(double number, const char* member) {
  if (!std::isfinite(number))
    refuse(fmt::format("{} in aiacc_softmax_shard_t is {}: give a finite number", member, number));
  return number;
}

softmax::Shard checked_shard(const aiacc_softmax_shard_t* shard, const std::int64_t* labels) {
  if (shard == nullptr) refuse("shard is NULL");
  const aiacc_softmax_shard_t given = read_sized(*shard, sizeof(aiacc_softmax_shard_t), "aiacc_softmax_shard_t");
  softmax::Shard checked;
  checked.type = checked_dtype(given.dtype);
  if (checked.type != DType::kFloat32 && checked.type != DType::kFloat64) {
    refuse(fmt::format("dtype in aiacc_softmax_shard_t is {}: logits are fp32 or fp64", name_of(checked.type)));
  }
  if (given.margin_kind < AIACC_MARGIN_NONE || given.margin_kind > AIACC_MARGIN_COS) {
    refuse(fmt::format("margin_kind in aiacc_softmax_shard_t is {}: pass one of AIACC_MARGIN_", given.margin_kind));
  }
  checked.rows = given.rows;
  checked.classes = given.classes;
  checked.first_class = given.first_class;
  checked.ids = given.ids;
  checked.margin = static_cast<softmax::Margin>(given.margin_kind);
  checked.size = finite(given.margin, "margin");
  checked.scale = given.scale == 0 ? 1 : finite(given.scale, "scale");
  const double rows = given.rows == 0 ? 1 : static_cast<double>(given.rows);
  checked.factor = given.gradient_scale == 0 ? 1 / rows : finite(given.gradient_scale, "gradient_scale");
  const auto all = static_cast<std::int64_t>(given.all_classes);
  for (std::size_t i = 0; given.ids != nullptr && i < given.classes; ++i) {
    if (given.ids[i] < 0 || given.ids[i] >= all || (i > 0 && given.ids[i] <= given.ids[i - 1])) {
      refuse(fmt::format("ids[{}] is {}: ids ascend, from 0 to {}", i, given.ids[i], all - 1));
    }
  }
  const auto count = static_cast<std::int64_t>(given.classes);
  if (given.ids == nullptr && (count > all || given.first_class < 0 || given.first_class > all - count)) {
    refuse(fmt::format("first_class in aiacc_softmax_shard_t is {}, with {} classes of {}", given.first_class,
                       given.classes, given.all_classes));
  }
  check_buffer("labels", labels, given.rows);
  for (std::size_t i = 0; i < given.rows; ++i) {
    if (labels[i] >= 0 && labels[i] < all) continue;
    refuse(fmt::format("labels[{}] is {}: classes are 0 to {}", i, labels[i], all - 1));
  }
  return checked;
}

}  // namespace

extern "C" {

aiacc_status_t aiacc_softmax_loss(const aiacc_softmax_shard_t* shard, void* logits, const int64_t* labels,
                                  double* losses, aiacc_group_t group, const aiacc_attr_t* attr) {
  return guarded([&] {
    refuse_to_block("aiacc_softmax_loss");
    GroupPin pin = pinned(group);
    const softmax::Shard checked = checked_shard(shard, labels);
    Reduction elements;
    elements.type = checked.type;
    std::size_t count = 0;
    if (__builtin_mul_overflow(checked.rows, checked.classes, &count)) count = SIZE_MAX;
    check_buffer("logits", logits, checked_bytes(count, 1, elements));
    check_buffer("losses", losses, checked.rows);
    Call call;
    CallOptions options;
    const bool other = read_attr(attr, call, options);
    if (options.callback != nullptr) refuse("aiacc_softmax_loss blocks: pass attributes without a callback");
    if (call.reduction.prescale != 1.0 || call.reduction.postscale != 1.0) {
      refuse("prescale and postscale mean nothing to aiacc_softmax_loss: use scale and gradient_scale");
    }
    softmax::loss(pin->group, checked, logits, labels, losses, other ? &options : nullptr);
  });
}

aiacc_status_t aiacc_softmax_split(size_t all_classes, aiacc_group_t group, int64_t* first, size_t* classes) {
  return guarded([&] {
    GroupPin pin = pinned(group);
    if (first == nullptr || classes == nullptr) refuse("first or classes is NULL: pass where the numbers shall go");
    const auto n = static_cast<std::size_t>(pin->group.size()), rank = static_cast<std::size_t>(pin->group.rank());
    const std::size_t each = all_classes / n, more = all_classes % n;
    *first = static_cast<std::int64_t>(rank * each + std::min(rank, more));
    *classes = each + (rank < more ? 1 : 0);
  });
}

aiacc_status_t aiacc_softmax_sample(int64_t first_class, size_t classes, const int64_t* labels, size_t rows,
                                    size_t wanted, uint64_t seed, int64_t* ids, size_t* n) {
  return guarded([&] {
    check_buffer("labels", labels, rows);
    check_buffer("ids", ids, classes);
    if (n == nullptr) refuse("n is NULL: pass where the number of classes shall go");
    *n = softmax::sample(first_class, classes, labels, rows, wanted, seed, ids);
  });
}

}  // extern "C"
