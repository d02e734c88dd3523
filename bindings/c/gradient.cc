// The gradient engine's functions.
#include "bindings/c/gradient.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/log.h"
#include "bindings/c/arguments.h"
#include "bindings/c/callbacks.h"
#include "bindings/c/guard.h"
#include "bindings/c/sized.h"
#include "bindings/c/submit.h"
#include "runtime/context.h"
#include "runtime/group/group.h"
#include "runtime/group/groups.h"
#include "runtime/lane_task.h"
#include "runtime/real_context.h"

using namespace aiacc;
using namespace aiacc::abi;

namespace {

using gradient::Engine;
using EnginePin = HandleTable<GradientEntry>::Pin;

constexpr std::size_t kLongestEngineName = 200;

EnginePin pinned_engine(aiacc_gradient_t engine) {
  EnginePin pin = state().gradients.find(engine);
  if (pin) return pin;
  refuse_forked();
  throw Error(Code::kInvalidHandle, is_kind(engine, HandleKind::kGradient)
                                        ? fmt::format("gradient engine {:#x} does not exist any more", engine)
                                        : fmt::format("{:#x} is not the handle of a gradient engine", engine));
}

// In the first version of the header: what has been added since follows.
constexpr std::size_t kFirstAttrBytes = offsetof(aiacc_gradient_attr_t, wire);
constexpr std::size_t kFirstTensorBytes = offsetof(aiacc_tensor_t, wire);
constexpr std::size_t kFirstStatsBytes = offsetof(aiacc_gradient_stats_t, wire_bytes);

std::optional<WireType> checked_wire(aiacc_wire_t wire, const std::string& where) {
  switch (wire) {
    case AIACC_WIRE_DEFAULT: return std::nullopt;
    case AIACC_WIRE_FLOAT32: return WireType::kFloat32;
    case AIACC_WIRE_FLOAT16: return WireType::kFloat16;
    case AIACC_WIRE_BFLOAT16: return WireType::kBFloat16;
    case AIACC_WIRE_MIXED: return WireType::kMixed;
  }
  refuse(fmt::format("wire in {} is {}: give one of aiacc_wire_t", where, static_cast<int>(wire)));
}

gradient::EngineOptions read_engine_attr(const aiacc_gradient_attr_t* attr, const RuntimeConfig& config) {
  gradient::EngineOptions options;
  options.fusion_bytes = config.fusion_bytes;
  options.in_flight = config.fusion_streams;
  options.schedule_steps = config.schedule_steps;
  options.timeout = config.timeout;
  options.late_after = config.late_after;
  options.wire = config.allreduce_dtype;
  options.nan_check = config.nan_check;
  options.tunes = config.tune;
  options.tune_cache = config.tune_cache;
  if (attr == nullptr) return options;
  const aiacc_gradient_attr_t given = read_sized(*attr, kFirstAttrBytes, "aiacc_gradient_attr_t");
  if (given.name != nullptr) options.name.assign(given.name, strnlen(given.name, kLongestEngineName));
  if (given.fusion_bytes != 0) options.fusion_bytes = given.fusion_bytes;
  constexpr std::int32_t kMostInFlight = 64;
  if (given.in_flight < 0 || given.in_flight > kMostInFlight) {
    refuse(fmt::format("in_flight in aiacc_gradient_attr_t is {}: give 1 to {}, or 0 for AIACC_FUSION_STREAMS",
                       given.in_flight, kMostInFlight));
  }
  if (given.in_flight != 0) options.in_flight = given.in_flight;
  if (given.schedule_steps < -1) {
    refuse(
        fmt::format("schedule_steps in aiacc_gradient_attr_t is {}: give 1 or more, -1 for never, or 0 for "
                    "AIACC_SCHEDULE_STEPS",
                    given.schedule_steps));
  }
  if (given.schedule_steps != 0) options.schedule_steps = given.schedule_steps;
  const Duration timeout = checked_timeout(given.timeout_ms, "aiacc_gradient_attr_t");
  if (timeout != Duration::zero()) options.timeout = timeout;
  options.wire = checked_wire(given.wire, "aiacc_gradient_attr_t").value_or(options.wire);
  if (given.nan_check < -1 || given.nan_check > 1)
    refuse(fmt::format("nan_check in aiacc_gradient_attr_t is {}: give 1, -1 for no, or 0 for AIACC_NAN_CHECK",
                       given.nan_check));
  if (given.nan_check != 0) options.nan_check = given.nan_check == 1;
  if (given.tune < -1 || given.tune > 1)
    refuse(fmt::format("tune in aiacc_gradient_attr_t is {}: give 1, -1 for no, or 0 for AIACC_TUNE", given.tune));
  if (given.tune != 0) options.tunes = given.tune == 1;
  return options;
}

double scale_of_gradient(double scale, const char* which, std::size_t at) {
  if (scale == 0.0) return 1.0;
  if (!(scale - scale == 0.0)) refuse(fmt::format("{} in tensors[{}] is {}: give a finite number", which, at, scale));
  return scale;
}

// Also that the tensor fits into memory.
void check_table(const gradient::TensorOrder& order, std::size_t at) {
  const gradient::Kind& kind = order.kind;
  if (!kind.is_table()) return static_cast<void>(checked_bytes(order.count, 1, kind.reduction()));
  if (!kind.sums() || kind.type == DType::kBool) {
    refuse(fmt::format("tensors[{}] is a table (row_elements is {}) of {}, {}: rows of numbers are summed or averaged",
                       at, kind.row_elements, name_of(kind.type), name_of(kind.op)));
  }
  const std::size_t row_bytes = checked_bytes(kind.row_elements, 1, kind.reduction());
  if (order.count > PTRDIFF_MAX / (row_bytes + sizeof(std::int64_t))) {
    refuse(fmt::format("count in tensors[{}] is {} and row_elements {}: more than there is memory", at, order.count,
                       kind.row_elements));
  }
}

// The elements of the array are as long as the caller's header has them.
gradient::TensorOrder read_tensor(const aiacc_tensor_t* tensors, std::size_t at) {
  const auto* const place = reinterpret_cast<const std::byte*>(tensors) + at * tensors->size;
  const aiacc_tensor_t given =
      read_sized(*reinterpret_cast<const aiacc_tensor_t*>(place), kFirstTensorBytes, "aiacc_tensor_t");
  if (given.size != tensors->size)
    refuse(fmt::format("size in tensors[{}] is {}, and in tensors[0] {}", at, given.size, tensors->size));
  gradient::TensorOrder order;
  if (given.name == nullptr || *given.name == '\0') refuse(fmt::format("name in tensors[{}] is empty", at));
  const std::size_t length = strnlen(given.name, Engine::kLongestName + 1);
  if (length > Engine::kLongestName) {
    refuse(fmt::format("name in tensors[{}] has more than {} bytes", at, Engine::kLongestName));
  }
  order.name = std::string_view(given.name, length);
  order.count = given.count;
  order.kind.type = checked_dtype(given.dtype);
  order.kind.op = checked_op(given.op, order.kind.type);
  order.kind.prescale = scale_of_gradient(given.prescale, "prescale", at);
  order.kind.postscale = scale_of_gradient(given.postscale, "postscale", at);
  order.wire = checked_wire(given.wire, fmt::format("tensors[{}]", at));
  order.priority = given.priority;
  order.kind.row_elements = given.row_elements;
  check_table(order, at);
  return order;
}

// Whoever takes the handle closes the engine; calls that are inside of it end by its end.
void close_engine(EnginePin& pin) {
  RealContext& context = *pin->context;
  const std::shared_ptr<Engine> engine = pin->engine;
  if (engine == nullptr) return;
  LaneTask::run(context.context().lane(), Duration::max(), "", [&](Stop& stop) { return engine->close(stop); });
}

// `submit(engine, submission)`, with the submission that a request names, or without one.
template <class Submit>
void submit_to(aiacc_gradient_t engine, aiacc_request_t* request, Submit&& submit) {
  EnginePin pin = pinned_engine(engine);
  if (request == nullptr) return submit(*pin->engine, nullptr);
  RequestTable::Place place(state().requests);
  place.object().emplace(pin->context);
  const std::uint64_t handle = place.handle();
  auto entry = place.name_and_pin();
  try {
    auto submission = std::make_unique<gradient::Submission>(pin->engine);
    gradient::Submission& submitted = *submission;
    entry->operation = std::move(submission);
    submit(*pin->engine, &submitted);
  } catch (...) {
    entry->operation.reset();
    entry.remove();
    throw;
  }
  *request = handle;
}

Task<void> make_on_lane(GradientEntry* entry, gradient::EngineOptions options) {
  entry->engine = std::make_shared<Engine>(entry->group.group, std::move(options));
  co_return;
}

Task<void> count_on_lane(Engine* engine, gradient::EngineStats* stats) {
  *stats = engine->count();
  co_return;
}

}  // namespace

namespace aiacc::abi {

void free_engines(RealContext& context) noexcept {
  for (const std::uint64_t handle : state().made.all(context)) {
    if (!is_kind(handle, HandleKind::kGradient)) continue;
    try {
      EnginePin pin = state().gradients.find(handle);
      if (!pin || !pin.remove()) continue;
      state().made.drop(context, handle);
      close_engine(pin);
    } catch (...) {  // the context says goodbye all the same, and tells what went wrong
    }
  }
}

}  // namespace aiacc::abi

extern "C" {

aiacc_status_t aiacc_gradient_create(aiacc_group_t group, const aiacc_gradient_attr_t* attr, aiacc_gradient_t* engine) {
  return guarded([&] {
    GroupPin pin = pinned(group);
    check_place(engine, "engine");
    RealContext& context = *pin->context;
    gradient::EngineOptions options = read_engine_attr(attr, context.context().config());
    options.tells = [&context](const std::string& line, bool warns) {
      const LogLevel level = warns ? LogLevel::kWarn : LogLevel::kInfo;
      if (context.log().logs(LogPart::kCollective, level)) context.log().write(LogPart::kCollective, level, line);
    };
    GroupOrder order;
    order.sort = GroupOrder::Sort::kEngine;
    order.name = options.name.empty() ? "gradients" : options.name;
    order.key = Hash64().add("gradient engine").add(options.name).value();
    order.timeout = options.timeout;
    for (int rank = 0; rank < pin->group.size(); ++rank) order.ranks.push_back(rank);
    auto entry = std::make_unique<GradientEntry>(pin->context, context.make_group(pin->group, std::move(order)));
    Lane& lane = context.context().lane();
    LaneTask::run(lane, Duration::max(), "", [&](Stop&) { return make_on_lane(entry.get(), std::move(options)); });
    const std::uint64_t handle = state().gradients.insert(std::move(entry));
    EnginePin made = state().gradients.find(handle);
    try {
      state().made.add(context, handle);
      made->engine->start();
    } catch (...) {
      state().made.drop(context, handle);
      made.remove();
      throw;
    }
    *engine = handle;
  });
}

aiacc_status_t aiacc_gradient_add(aiacc_gradient_t engine, size_t n, const aiacc_tensor_t* tensors, uint32_t* indices) {
  return guarded([&] {
    EnginePin pin = pinned_engine(engine);
    if (n == 0) return;
    if (tensors == nullptr) refuse(fmt::format("tensors is NULL, but n is {}", n));
    check_place(indices, "indices");
    std::vector<gradient::TensorOrder> orders;
    orders.reserve(n);
    for (std::size_t i = 0; i < n; ++i) orders.push_back(read_tensor(tensors, i));
    pin->engine->add(orders, indices);
  });
}

aiacc_status_t aiacc_gradient_remove(aiacc_gradient_t engine, size_t n, const uint32_t* indices) {
  return guarded([&] {
    EnginePin pin = pinned_engine(engine);
    if (n > 0 && indices == nullptr) refuse(fmt::format("indices is NULL, but n is {}", n));
    pin->engine->remove(std::span(indices, n));
  });
}

aiacc_status_t aiacc_gradient_memory(aiacc_gradient_t engine, uint32_t tensor, void** memory) {
  return guarded([&] {
    EnginePin pin = pinned_engine(engine);
    check_place(memory, "memory");
    *memory = pin->engine->memory(tensor);
  });
}

aiacc_status_t aiacc_gradient_in_place(aiacc_gradient_t engine, uint32_t tensor, int* in_place) {
  return guarded([&] {
    EnginePin pin = pinned_engine(engine);
    check_place(in_place, "in_place");
    *in_place = pin->engine->in_place(tensor) ? 1 : 0;
  });
}

aiacc_status_t aiacc_gradient_submit(aiacc_gradient_t engine, uint32_t tensor, const void* in, void* out,
                                     aiacc_request_t* request) {
  return guarded([&] {
    submit_to(engine, request,
              [&](Engine& to, gradient::Submission* submission) { to.submit(tensor, in, out, submission); });
  });
}

aiacc_status_t aiacc_gradient_submit_rows(aiacc_gradient_t engine, uint32_t tensor, size_t count, const int64_t* rows,
                                          const void* values, aiacc_request_t* request) {
  return guarded([&] {
    submit_to(engine, request, [&](Engine& to, gradient::Submission* submission) {
      if (count > 0 && rows == nullptr) refuse(fmt::format("rows is NULL, but count is {}", count));
      if (count > 0 && values == nullptr) refuse(fmt::format("values is NULL, but count is {}", count));
      if (count > PTRDIFF_MAX / sizeof *rows) refuse(fmt::format("count is {}: more than there is memory", count));
      const auto* const elements = static_cast<const std::byte*>(values);
      to.submit_rows(tensor, {std::span(rows, count), elements}, submission);
    });
  });
}

aiacc_status_t aiacc_gradient_rows(aiacc_gradient_t engine, uint32_t tensor, size_t* count, const int64_t** rows,
                                   const void** values) {
  return guarded([&] {
    const gradient::RowsView result = pinned_engine(engine)->engine->rows(tensor);
    if (count != nullptr) *count = result.numbers.size();
    if (rows != nullptr) *rows = result.numbers.data();
    if (values != nullptr) *values = result.elements;
  });
}

aiacc_status_t aiacc_gradient_flush(aiacc_gradient_t engine) {
  return guarded([&] { pinned_engine(engine)->engine->flush(); });
}

aiacc_status_t aiacc_gradient_wait(aiacc_gradient_t engine) {
  return guarded([&] {
    refuse_to_block("aiacc_gradient_wait");
    pinned_engine(engine)->engine->wait();
  });
}

aiacc_status_t aiacc_gradient_wait_for(aiacc_gradient_t engine, uint32_t tensor, int64_t timeout_ms) {
  return guarded([&]() -> aiacc_status_t {
    EnginePin pin = pinned_engine(engine);
    if (timeout_ms < 0) refuse(fmt::format("timeout_ms is {}: give 0 or more", timeout_ms));
    refuse_to_block("aiacc_gradient_wait_for");
    // Longer than any program runs, and short enough to be added to a time.
    constexpr std::int64_t kMost = std::int64_t{1} << 40;
    const std::chrono::milliseconds limit(std::min(timeout_ms, kMost));
    return pin->engine->wait_for(tensor, limit) ? AIACC_OK : AIACC_PENDING;
  });
}

aiacc_status_t aiacc_gradient_join(aiacc_gradient_t engine, int* last_rank) {
  return guarded([&] {
    refuse_to_block("aiacc_gradient_join");
    const int last = pinned_engine(engine)->engine->join();
    if (last_rank != nullptr) *last_rank = last;
  });
}

aiacc_status_t aiacc_gradient_get_stats(aiacc_gradient_t engine, aiacc_gradient_stats_t* stats) {
  return guarded([&] {
    EnginePin pin = pinned_engine(engine);
    check_place(stats, "stats");
    const std::size_t size = stats->size;
    if (size < kFirstStatsBytes || size > 4096) {
      refuse(fmt::format(
          "size in aiacc_gradient_stats_t is {}: set it to sizeof(aiacc_gradient_stats_t), which is {} here", size,
          sizeof(aiacc_gradient_stats_t)));
    }
    gradient::EngineStats counted;
    LaneTask::run(pin->context->context().lane(), Duration::max(), "",
                  [&](Stop&) { return count_on_lane(pin->engine.get(), &counted); });
    aiacc_gradient_stats_t known{};
    known.size = size;
    known.steps = counted.steps;
    known.rounds = counted.rounds;
    known.negotiation_messages = counted.negotiation_messages;
    known.launches = counted.launches;
    known.tensors = counted.tensors;
    known.bytes = counted.bytes;
    known.packed_bytes = counted.packed_bytes;
    known.breaks = counted.breaks;
    known.scheduled = counted.scheduled ? 1 : 0;
    known.wire_bytes = counted.wire_bytes;
    known.fusion_bytes = counted.setting.fusion_bytes;
    known.in_flight = counted.setting.in_flight;
    known.tuning = !counted.tunes ? 0 : counted.settled ? 2 : 1;
    known.tune_steps = counted.tune_steps;
    known.tune_searches = counted.tune_searches;
    known.algorithm = counted.algorithm;
    std::memset(stats, 0, size);
    std::memcpy(stats, &known, std::min(size, sizeof known));
  });
}

aiacc_status_t aiacc_gradient_free(aiacc_gradient_t engine) {
  return guarded([&] {
    refuse_to_block("aiacc_gradient_free");
    std::shared_ptr<RealContext> context;
    {
      EnginePin pin = pinned_engine(engine);
      if (!pin.remove()) static_cast<void>(pinned_engine(engine));
      context = pin->context;
      state().made.drop(*context, engine);
      close_engine(pin);
    }
    context->collect_groups();
  });
}

}  // extern "C"
