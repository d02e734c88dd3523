// Batch normalisation over the ranks of a group: checks the arguments and calls it.
#include "bindings/c/syncbn.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <string>

#include "base/hash.h"
#include "bindings/c/arguments.h"
#include "bindings/c/callbacks.h"
#include "bindings/c/guard.h"
#include "bindings/c/sized.h"
#include "bindings/c/submit.h"
#include "runtime/context.h"
#include "runtime/group/group.h"
#include "runtime/group/groups.h"
#include "runtime/real_context.h"

using namespace aiacc;
using namespace aiacc::abi;

namespace {

using syncbn::Batch;
using syncbn::Saved;
using SyncbnPin = HandleTable<SyncbnEntry>::Pin;

constexpr std::size_t kLongestSyncbnName = 200;

SyncbnPin pinned_syncbn(aiacc_syncbn_t handle) {
  SyncbnPin pin = state().syncbns.find(handle);
  if (pin) return pin;
  refuse_forked();
  throw Error(Code::kInvalidHandle, is_kind(handle, HandleKind::kSyncbn)
                                        ? fmt::format("SyncBN handle {:#x} does not exist any more", handle)
                                        : fmt::format("{:#x} is not a handle of aiacc_syncbn_create", handle));
}

template <class Given>
void check_given(const Given* given, const char* argument) {
  if (given == nullptr) refuse(fmt::format("{} is NULL", argument));
}

Batch checked_batch(const aiacc_syncbn_batch_t* batch) {
  check_given(batch, "batch");
  const aiacc_syncbn_batch_t given = read_sized(*batch, sizeof(aiacc_syncbn_batch_t), "aiacc_syncbn_batch_t");
  Batch checked;
  checked.type = checked_dtype(given.dtype);
  if (checked.type != DType::kFloat16 && checked.type != DType::kBFloat16 && checked.type != DType::kFloat32 &&
      checked.type != DType::kFloat64) {
    refuse(fmt::format("dtype in aiacc_syncbn_batch_t is {}: batches are normalised in fp16, bf16, fp32 and fp64",
                       name_of(checked.type)));
  }
  if (given.layout != AIACC_CHANNELS_FIRST && given.layout != AIACC_CHANNELS_LAST) {
    refuse(fmt::format("layout in aiacc_syncbn_batch_t is {}: pass AIACC_CHANNELS_FIRST or AIACC_CHANNELS_LAST",
                       given.layout));
  }
  if (given.channels == 0) refuse("channels in aiacc_syncbn_batch_t is 0: a batch has at least one channel");
  checked.samples = given.samples;
  checked.channels = given.channels;
  checked.positions = given.positions;
  checked.layout = given.layout == AIACC_CHANNELS_LAST ? syncbn::Layout::kChannelsLast : syncbn::Layout::kChannelsFirst;
  std::size_t count = 0, elements = 0;
  Reduction of_elements;
  of_elements.type = checked.type;
  const bool too_many = __builtin_mul_overflow(given.samples, given.positions, &count) ||
                        __builtin_mul_overflow(count, given.channels, &elements);
  static_cast<void>(checked_bytes(too_many ? SIZE_MAX : elements, 1, of_elements));
  Reduction of_channels;
  of_channels.type = DType::kFloat64;
  static_cast<void>(checked_bytes(given.channels, 4, of_channels));
  return checked;
}

std::size_t bytes_of(const Batch& batch) { return batch.elements() * size_of(batch.type); }

syncbn::Layer checked_layer(const aiacc_syncbn_layer_t* layer) {
  check_given(layer, "layer");
  const aiacc_syncbn_layer_t given = read_sized(*layer, sizeof(aiacc_syncbn_layer_t), "aiacc_syncbn_layer_t");
  if (!(given.epsilon >= 0) || std::isinf(given.epsilon)) {
    refuse(fmt::format("epsilon in aiacc_syncbn_layer_t is {}: give a finite number, 0 or more", given.epsilon));
  }
  if (!std::isfinite(given.momentum)) {
    refuse(fmt::format("momentum in aiacc_syncbn_layer_t is {}: give a finite number", given.momentum));
  }
  if (given.convention != AIACC_SYNCBN_TORCH && given.convention != AIACC_SYNCBN_MXNET) {
    refuse(fmt::format("convention in aiacc_syncbn_layer_t is {}: pass AIACC_SYNCBN_TORCH or AIACC_SYNCBN_MXNET",
                       given.convention));
  }
  syncbn::Layer checked;
  checked.weight = given.weight;
  checked.bias = given.bias;
  checked.running_mean = given.running_mean;
  checked.running_variance = given.running_variance;
  checked.epsilon = given.epsilon;
  checked.momentum = given.momentum;
  checked.convention = given.convention == AIACC_SYNCBN_MXNET ? syncbn::Convention::kMxnet : syncbn::Convention::kTorch;
  return checked;
}

}  // namespace

namespace aiacc::abi {

void free_syncbns(RealContext& context) noexcept {
  for (const std::uint64_t handle : state().made.all(context)) {
    if (!is_kind(handle, HandleKind::kSyncbn)) continue;
    SyncbnPin pin = state().syncbns.find(handle);
    if (pin) pin.remove();
    state().made.drop(context, handle);
  }
}

}  // namespace aiacc::abi

extern "C" {

aiacc_status_t aiacc_syncbn_create(aiacc_group_t group, const aiacc_syncbn_attr_t* attr, aiacc_syncbn_t* syncbn) {
  return guarded([&] {
    GroupPin pin = pinned(group);
    if (syncbn == nullptr) refuse("syncbn is NULL: pass where the handle shall go");
    GroupOrder order;
    order.sort = GroupOrder::Sort::kEngine;
    order.name = "SyncBN";
    std::string name;
    if (attr != nullptr) {
      const aiacc_syncbn_attr_t given = read_sized(*attr, sizeof(aiacc_syncbn_attr_t), "aiacc_syncbn_attr_t");
      if (given.name != nullptr) name.assign(given.name, strnlen(given.name, kLongestSyncbnName));
      order.timeout = checked_timeout(given.timeout_ms, "aiacc_syncbn_attr_t");
    }
    if (!name.empty()) order.name += " " + name;
    order.key = Hash64().add("syncbn").add(name).value();
    for (int rank = 0; rank < pin->group.size(); ++rank) order.ranks.push_back(rank);
    RealContext& context = *pin->context;
    auto entry =
        std::make_unique<SyncbnEntry>(pin->context, context.make_group(pin->group, std::move(order)), std::move(name));
    const std::uint64_t handle = state().syncbns.insert(std::move(entry));
    try {
      state().made.add(context, handle);
    } catch (...) {
      state().syncbns.find(handle).remove();
      throw;
    }
    *syncbn = handle;
  });
}

aiacc_status_t aiacc_syncbn_forward(aiacc_syncbn_t syncbn, const aiacc_syncbn_batch_t* batch,
                                    const aiacc_syncbn_layer_t* layer, const void* x, void* y, double* saved) {
  return guarded([&] {
    refuse_to_block("aiacc_syncbn_forward");
    SyncbnPin pin = pinned_syncbn(syncbn);
    const Batch checked = checked_batch(batch);
    const syncbn::Layer parameters = checked_layer(layer);
    const std::size_t bytes = bytes_of(checked);
    check_buffer("x", x, bytes);
    check_buffer("y", y, bytes);
    check_given(saved, "saved");
    if (x != y) check_apart(x, bytes, y, bytes, "pass the same pointer for both");
    pin->norm.forward(checked, parameters, x, y, saved);
  });
}

aiacc_status_t aiacc_syncbn_backward(aiacc_syncbn_t syncbn, const aiacc_syncbn_batch_t* batch, const void* weight,
                                     const double* saved, const void* x, const void* dy, void* dx, void* dweight,
                                     void* dbias) {
  return guarded([&] {
    refuse_to_block("aiacc_syncbn_backward");
    SyncbnPin pin = pinned_syncbn(syncbn);
    const Batch checked = checked_batch(batch);
    const std::size_t bytes = bytes_of(checked);
    check_given(saved, "saved");
    const double count = *Saved(const_cast<double*>(saved), checked.channels).count;
    if (!(count >= 1) || count < static_cast<double>(checked.count())) {
      refuse(
          fmt::format("saved has {} elements of a channel, and this batch has {}: pass what aiacc_syncbn_forward saved "
                      "of the same batch",
                      count, checked.count()));
    }
    check_buffer("x", x, bytes);
    check_buffer("dy", dy, bytes);
    if (dx != nullptr && dx != dy) check_apart(dy, bytes, dx, bytes, "pass the same pointer for dy and dx");
    if (dx != nullptr && dx != x) check_apart(x, bytes, dx, bytes, "pass the same pointer for x and dx");
    pin->norm.backward(checked, weight, saved, x, dy, dx, dweight, dbias);
  });
}

aiacc_status_t aiacc_syncbn_join(aiacc_syncbn_t syncbn) {
  return guarded([&] {
    refuse_to_block("aiacc_syncbn_join");
    pinned_syncbn(syncbn)->norm.join();
  });
}

aiacc_status_t aiacc_syncbn_abort(aiacc_syncbn_t syncbn, const char* reason) {
  return guarded([&] {
    SyncbnPin pin = pinned_syncbn(syncbn);
    pin->group.context->abort_group(pin->group.group, checked_reason(reason));
  });
}

aiacc_status_t aiacc_syncbn_free(aiacc_syncbn_t syncbn) {
  return guarded([&] {
    refuse_to_block("aiacc_syncbn_free");
    std::shared_ptr<RealContext> context;
    {
      SyncbnPin pin = pinned_syncbn(syncbn);
      if (!pin.remove()) static_cast<void>(pinned_syncbn(syncbn));
      context = pin->group.context;
      state().made.drop(*context, syncbn);
    }
    context->collect_groups();
  });
}

}  // extern "C"
