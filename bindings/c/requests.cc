// Requests: test, wait for one, any or all, and query one without freeing it. Exactly one caller gets the status of an
// operation and frees the request.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/io/real_clock.h"
#include "base/task/slab_pool.h"
#include "bindings/c/callbacks.h"
#include "bindings/c/guard.h"
#include "bindings/c/state.h"
#include "runtime/context.h"
#include "runtime/real_context.h"

using namespace aiacc;
using namespace aiacc::abi;

namespace {

using RequestPin = RequestTable::Pin;

Error unknown_request(aiacc_request_t request) {
  return Error(
      Code::kInvalidHandle,
      is_kind(request, HandleKind::kRequest)
          ? fmt::format("request {:#x} does not exist any more: a completed request is gone once aiacc_wait or "
                        "aiacc_test returned its status",
                        request)
          : fmt::format("{:#x} is not the handle of a request", request));
}

RequestPin pinned_request(aiacc_request_t request) {
  RequestPin pin = state().requests.find(request);
  if (!pin) {
    refuse_forked();
    throw unknown_request(request);
  }
  return pin;
}

// The status of a completed operation, for the one caller that frees the request.
aiacc_status_t take(RequestPin& pin, aiacc_request_t request) {
  if (!pin.remove()) throw unknown_request(request);
  const std::exception_ptr error = pin->error();
  return error ? remember(error) : AIACC_OK;
}

// If the call ended well while it was submitted.
bool take_ended(aiacc_request_t request) noexcept {
  RequestTable::Freed freed(state().requests);
  return state().requests.take_ended(request, freed);
}

aiacc_status_t wait_for(aiacc_request_t request, std::optional<Duration> timeout) noexcept {
  return guarded([&]() -> aiacc_status_t {
    if (timeout != Duration::zero()) refuse_to_block("aiacc_wait");
    if (take_ended(request)) return AIACC_OK;
    RequestPin pin = pinned_request(request);
    pin->expect();
    if (!pin->done() && !pin->context->context().lane().wait(*pin->operation, timeout)) return AIACC_PENDING;
    return take(pin, request);
  });
}

// Converts a time-out in milliseconds; nullopt: no limit.
std::optional<Duration> limit_of(std::int64_t timeout_ms) {
  if (timeout_ms < 0 && timeout_ms != AIACC_FOREVER) {
    throw Error(Code::kInvalidArgument, fmt::format("timeout_ms is {}: give 0 or more, or AIACC_FOREVER", timeout_ms));
  }
  constexpr std::int64_t kLongest = std::numeric_limits<std::int64_t>::max() / 1'000'000;
  if (timeout_ms < 0 || timeout_ms > kLongest) return std::nullopt;
  return Duration(timeout_ms * 1'000'000);
}

// A request of an array that is not AIACC_NULL.
struct Held {
  std::size_t index;
  RequestPin pin;
};

// `ended_too`: also those that ended well while they were submitted.
std::vector<Held> pinned_requests(std::size_t n, const aiacc_request_t* requests, bool ended_too) {
  if (n > 0 && requests == nullptr) {
    throw Error(Code::kInvalidArgument, fmt::format("requests is NULL, but n is {}", n));
  }
  std::vector<Held> held;
  held.reserve(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (requests[i] == AIACC_NULL || (!ended_too && state().requests.is_ended(requests[i]))) continue;
    RequestPin pin = state().requests.find(requests[i]);
    if (!pin) {
      refuse_forked();
      const Error unknown = unknown_request(requests[i]);
      throw Error(unknown.code(), fmt::format("requests[{}]: {}", i, unknown.message()));
    }
    pin->expect();
    held.push_back({i, std::move(pin)});
  }
  return held;
}

// The first one that is done; null if none is.
Held* done_one(std::vector<Held>& held) {
  const auto found = std::find_if(held.begin(), held.end(), [](const Held& each) { return each.pin->done(); });
  return found == held.end() ? nullptr : &*found;
}

// Waits until one is done or the time-out passes. If all requests belong to one context, it waits for all of them at
// once. Otherwise the contexts' helper threads drive them, and it polls the contexts in turn.
Held* wait_for_one(std::vector<Held>& held, std::optional<Duration> limit) {
  constexpr Duration kTurn = std::chrono::milliseconds(1);
  if (Held* done = done_one(held)) return done;
  std::map<Lane*, std::vector<Work*>> lanes;
  for (Held& each : held) lanes[&each.pin->context->context().lane()].push_back(each.pin->operation.get());
  const Instant began = io::RealClock().now();
  while (true) {
    if (Held* done = done_one(held)) return done;
    const Duration past = io::RealClock().now() - began;
    if (limit && past >= *limit) return nullptr;
    for (auto& [lane, works] : lanes) {
      std::optional<Duration> turn = lanes.size() > 1 ? std::optional(kTurn) : limit;
      if (limit) turn = std::min(*turn, *limit - past);
      if (lane->wait_any(works, turn)) break;
    }
  }
}

// Waits, lane by lane, until all are done or the time-out passes.
bool wait_for_all(std::vector<Held>& held, std::optional<Duration> limit) {
  std::vector<std::pair<Lane*, std::vector<Work*>>> lanes;
  std::size_t last = 0;
  for (Held& each : held) {
    if (each.pin->done()) continue;
    Lane& lane = each.pin->context->context().lane();
    if (lanes.empty() || lanes[last].first != &lane) {
      last = 0;
      while (last < lanes.size() && lanes[last].first != &lane) ++last;
      if (last == lanes.size()) lanes.emplace_back(&lane, std::vector<Work*>()).second.reserve(held.size());
    }
    lanes[last].second.push_back(each.pin->operation.get());
  }
  if (lanes.empty()) return true;
  const Instant began = io::RealClock().now();
  bool all = true;
  for (auto& [lane, works] : lanes) {
    std::optional<Duration> left = limit;
    if (left) *left -= std::min<Duration>(*left, io::RealClock().now() - began);
    all &= lane->wait_all(works, left);
  }
  return all;
}

// Frees requests that are over: many at once cost their contexts, pools and table one atomic operation each.
class Freeing {
 public:
  Freeing() noexcept : freed_(state().requests) {}
  ~Freeing() { count_down(); }
  Freeing(const Freeing&) = delete;
  Freeing& operator=(const Freeing&) = delete;

  // Throws if another caller has freed it.
  void free(RequestPin pin, aiacc_request_t request) {
    const bool removed = pin.remove(freed_, [this](RequestEntry& entry) {
      if (entry.context != context_) count_down();
      if (!gathering_) gathering_.emplace();
      context_ = entry.take_context();
      if (context_ != nullptr) ++count_;
    });
    if (!removed) {
      count_down();  // before `pin`, which may be the last user of a context that has gone
      throw unknown_request(request);
    }
  }
  // One that ended well while it was submitted.
  void free_ended(aiacc_request_t request) {
    if (!state().requests.take_ended(request, freed_)) free(state().requests.find(request), request);
  }

 private:
  // What was gathered is the context's, which may be gone then.
  void count_down() noexcept {
    gathering_.reset();
    if (count_ > 0) context_->end_requests(std::exchange(count_, 0));
  }

  RequestTable::Freed freed_;
  std::optional<SlabPool::Gathering> gathering_;
  RealContext* context_ = nullptr;
  std::int64_t count_ = 0;
};

}  // namespace

extern "C" {

aiacc_status_t aiacc_test(aiacc_request_t request) {
  return guarded([&]() -> aiacc_status_t {
    if (take_ended(request)) return AIACC_OK;
    RequestPin pin = pinned_request(request);
    pin->expect();
    if (!pin->done() && !pin->context->context().lane().test(*pin->operation)) return AIACC_PENDING;
    return take(pin, request);
  });
}

aiacc_status_t aiacc_wait(aiacc_request_t request) { return wait_for(request, std::nullopt); }

aiacc_status_t aiacc_wait_for(aiacc_request_t request, int64_t timeout_ms) {
  return guarded([&] {
    if (timeout_ms < 0) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("timeout_ms is {}: give 0 or more, or call aiacc_wait", timeout_ms));
    }
    return wait_for(request, limit_of(timeout_ms));
  });
}

aiacc_status_t aiacc_wait_any(size_t n, aiacc_request_t* requests, int64_t timeout_ms, size_t* index) {
  return guarded([&]() -> aiacc_status_t {
    if (index == nullptr) throw Error(Code::kInvalidArgument, "index is NULL: pass where the place shall go");
    const std::optional<Duration> limit = limit_of(timeout_ms);
    if (timeout_ms != 0) refuse_to_block("aiacc_wait_any");
    std::vector<Held> held = pinned_requests(n, requests, true);
    if (held.empty()) {
      *index = n;
      return AIACC_OK;
    }
    Held* done = wait_for_one(held, limit);
    if (done == nullptr) return AIACC_PENDING;
    const aiacc_request_t request = requests[done->index];
    *index = done->index;
    requests[done->index] = AIACC_NULL;
    return take(done->pin, request);
  });
}

aiacc_status_t aiacc_wait_all(size_t n, aiacc_request_t* requests, int64_t timeout_ms) {
  return guarded([&]() -> aiacc_status_t {
    const std::optional<Duration> limit = limit_of(timeout_ms);
    if (timeout_ms != 0) refuse_to_block("aiacc_wait_all");
    std::vector<Held> held = pinned_requests(n, requests, false);
    const bool all = wait_for_all(held, limit);
    aiacc_status_t first = AIACC_OK;
    std::exception_ptr error;
    Freeing freeing;
    auto next = held.begin();
    for (std::size_t i = 0; i < n; ++i) {
      if (next == held.end() || next->index != i) {
        if (requests[i] != AIACC_NULL) freeing.free_ended(std::exchange(requests[i], AIACC_NULL));
        continue;
      }
      Held& each = *next++;
      const RequestEntry& entry = *each.pin;
      // After a time-out a failed request is not freed: a later call reports its error.
      if (!entry.done() || (!all && entry.error())) continue;
      if (!error) error = entry.error();
      freeing.free(std::move(each.pin), std::exchange(requests[i], AIACC_NULL));
    }
    if (error) first = remember(error);
    return all ? first : AIACC_PENDING;
  });
}

aiacc_status_t aiacc_request_free(aiacc_request_t request) {
  return guarded([&] {
    RequestPin pin = pinned_request(request);
    if (!pin.remove()) throw unknown_request(request);
  });
}

aiacc_status_t aiacc_request_error(aiacc_request_t request, const char** sentence) {
  return guarded([&]() -> aiacc_status_t {
    if (sentence == nullptr) throw Error(Code::kInvalidArgument, "sentence is NULL: pass where the pointer shall go");
    RequestPin pin = pinned_request(request);
    *sentence = "";
    if (!pin->done()) return AIACC_PENDING;
    if (!pin->error()) return AIACC_OK;
    const Error error = as_error(pin->error());
    std::lock_guard lock(state().sentences_mutex);
    if (!pin->sentence) pin->sentence = std::make_unique<const std::string>(error.message());
    *sentence = pin->sentence->c_str();
    return static_cast<aiacc_status_t>(error.code());
  });
}

aiacc_status_t aiacc_request_sequence(aiacc_request_t request, uint64_t* sequence) {
  return guarded([&]() -> aiacc_status_t {
    if (sequence == nullptr) throw Error(Code::kInvalidArgument, "sequence is NULL: pass where the number shall go");
    RequestPin pin = pinned_request(request);
    *sequence = pin->sequence();
    return *sequence == 0 && !pin->done() ? AIACC_PENDING : AIACC_OK;
  });
}

}  // extern "C"
