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
      is_kind(request, HandleKind::kRequest) || is_kind(request, HandleKind::kEndedRequest)
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

constexpr auto ended_well = [](const RequestEntry& entry) noexcept { return entry.done() && !entry.failed(); };

// If it is over and went well, and nobody else uses it: the request is freed.
bool take_if_over(aiacc_request_t request) noexcept {
  if (state().ended_requests.take(request)) return true;
  RealContext* context = nullptr;
  {
    RequestTable::Freed freed(state().requests);
    const auto free = [&](RequestEntry& entry) { context = entry.take_context(); };
    if (state().requests.take_if(request, freed, ended_well, free) != RequestTable::Took::kTaken) return false;
  }
  if (context != nullptr) context->end_requests(1);
  return true;
}

aiacc_status_t wait_for(aiacc_request_t request, std::optional<Duration> timeout) noexcept {
  return guarded([&]() -> aiacc_status_t {
    if (timeout != Duration::zero()) refuse_to_block("aiacc_wait");
    if (take_if_over(request)) return AIACC_OK;
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

void check_requests(std::size_t n, const aiacc_request_t* requests) {
  if (n > 0 && requests == nullptr) {
    throw Error(Code::kInvalidArgument, fmt::format("requests is NULL, but n is {}", n));
  }
}

[[noreturn]] void refuse_request(std::size_t place, aiacc_request_t request) {
  refuse_forked();
  const Error unknown = unknown_request(request);
  throw Error(unknown.code(), fmt::format("requests[{}]: {}", place, unknown.message()));
}

// `ended` gets the place of one whose call ended while it was submitted, or n.
std::vector<Held> pinned_requests(std::size_t n, const aiacc_request_t* requests, std::size_t* ended) {
  check_requests(n, requests);
  *ended = n;
  std::vector<Held> held;
  held.reserve(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (requests[i] == AIACC_NULL) continue;
    if (state().ended_requests.find(requests[i]) != 0) {
      *ended = i;
      continue;
    }
    RequestPin pin = state().requests.find(requests[i]);
    if (!pin) refuse_request(i, requests[i]);
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

// Frees requests that are over: many at once cost their contexts, pools and table one atomic operation each.
class Freeing {
 public:
  Freeing() noexcept : freed_(state().requests) {}
  ~Freeing() { count_down(); }
  Freeing(const Freeing&) = delete;
  Freeing& operator=(const Freeing&) = delete;

  // Whether a request of this context may be freed before a count_down(). Null: of none.
  bool may_free_of(const RealContext* context) const noexcept {
    return context == nullptr || context_ == nullptr || context == context_;
  }
  // If it went well, and nobody else uses it.
  RequestTable::Took free_if_over(aiacc_request_t request) noexcept {
    const auto over = [this](const RequestEntry& entry) { return ended_well(entry) && may_free_of(entry.context); };
    return state().requests.take_if(request, freed_, over, [this](RequestEntry& entry) { take(entry); });
  }
  // One that is over, of a context that may_free_of() allows. False if another caller has freed it.
  bool free(RequestPin pin) noexcept {
    return pin.remove(freed_, [this](RequestEntry& entry) { take(entry); });
  }
  // Before a lane is driven, which gives memory back and takes it itself.
  void give_back() noexcept { gathering_.reset(); }
  // No context that a request referred to need be there any more.
  void count_down() noexcept {
    gathering_.reset();  // the context's, which may be gone then
    if (count_ > 0) context_->end_requests(std::exchange(count_, 0));
    context_ = nullptr;
  }

 private:
  void take(RequestEntry& entry) noexcept {
    if (!gathering_) gathering_.emplace();
    RealContext* const context = entry.take_context();
    if (context == nullptr) return;
    context_ = context;
    ++count_;
  }

  RequestTable::Freed freed_;
  std::optional<SlabPool::Gathering> gathering_;
  RealContext* context_ = nullptr;
  std::int64_t count_ = 0;
};

// The requests of an array, in their order. Each is freed when it is over; one that is so before its turn is looked at once.
class AllOf final : private Lane::InTurn {
 public:
  // Nothing is freed if one of them does not exist. Of quiet ones expect() need not be called.
  AllOf(std::size_t n, aiacc_request_t* requests) : n_(n), requests_(requests) {
    check_requests(n, requests);
    for (std::size_t i = 0; i < n; ++i) {
      if (requests[i] == AIACC_NULL || ended_.find(requests[i]) != 0 || table_.is_quiet(requests[i])) continue;
      const RequestPin pin = table_.find(requests[i]);
      if (!pin) refuse_request(i, requests[i]);
      pin->expect();
    }
  }

  // Whether all are over before the time-out. Those that failed stay.
  bool wait(std::optional<Duration> limit) {
    const Instant began = io::RealClock().now();
    while (true) {
      const Work* const work = unfinished();
      if (lost_) throw unknown_request(requests_[next_]);
      if (next_ == n_) return true;
      if (work == nullptr) {
        freeing_.count_down();
        continue;
      }
      std::optional<Duration> left = limit;
      if (left) *left -= std::min<Duration>(*left, io::RealClock().now() - began);
      RealContext& context = *(*present_)->context;
      if (!freeing_.may_free_of(&context)) freeing_.count_down();
      context.add_request();  // another caller may free the last one that refers to it while this one sleeps
      lane_ = &context.context().lane();
      const bool in_time = lane_->wait_all(*this, left);
      lane_ = nullptr;
      context.end_requests(1);
      if (!in_time && !lost_) return false;
    }
  }
  // After wait(): frees those that are over and went well.
  void free_others() noexcept {
    present_.reset();
    for (; next_ < n_; ++next_) {
      if (requests_[next_] == AIACC_NULL || free_if_over()) continue;
      freeing_.count_down();
      free_if_over();
    }
  }
  // After wait() has returned true: frees those that failed, and returns the first error.
  std::exception_ptr free_failed() {
    if (!failed_) return nullptr;
    std::exception_ptr first;
    for (std::size_t i = 0; i < n_; ++i) {
      const aiacc_request_t request = std::exchange(requests_[i], AIACC_NULL);
      if (request == AIACC_NULL) continue;
      RequestPin pin = table_.find(request);
      if (!pin) throw unknown_request(request);
      if (!first) first = pin->error();
      if (!freeing_.may_free_of(pin->context)) freeing_.count_down();
      if (!freeing_.free(std::move(pin))) throw unknown_request(request);
    }
    return first;
  }

 private:
  bool free_if_over() noexcept {
    if (!ended_.take(requests_[next_]) && freeing_.free_if_over(requests_[next_]) != RequestTable::Took::kTaken) {
      return false;
    }
    requests_[next_] = AIACC_NULL;
    return true;
  }

  // Null also if the next one is another lane's, or of a context of which none may be freed now, or is lost to another caller.
  [[gnu::flatten]] Work* unfinished() noexcept override {
    for (; next_ < n_; ++next_) {
      if (requests_[next_] == AIACC_NULL) continue;
      if (!present_) {
        if (free_if_over()) continue;
        RequestPin pin = table_.find(requests_[next_]);
        lost_ = !pin;
        if (lost_) return nullptr;
        present_.emplace(std::move(pin));
      }
      const RequestEntry& entry = **present_;
      if (!entry.done()) {
        freeing_.give_back();
        const bool here = lane_ == nullptr || lane_ == &entry.context->context().lane();
        return here ? entry.operation.get() : nullptr;
      }
      if (!freeing_.may_free_of(entry.context)) return nullptr;
      if (entry.failed()) {
        failed_ = true;
        present_.reset();
        continue;
      }
      lost_ = !freeing_.free(std::move(*present_));
      present_.reset();
      if (lost_) return nullptr;
      requests_[next_] = AIACC_NULL;
    }
    return nullptr;
  }

  RequestTable& table_ = state().requests;
  EndedHandles& ended_ = state().ended_requests;
  std::size_t n_;
  aiacc_request_t* requests_;
  std::size_t next_ = 0;
  Freeing freeing_;
  std::optional<RequestPin> present_;  // the next one, while it is waited for
  Lane* lane_ = nullptr;               // that is driven
  bool failed_ = false;                // one of those before
  bool lost_ = false;                  // another caller has freed the next one
};

}  // namespace

extern "C" {

aiacc_status_t aiacc_test(aiacc_request_t request) {
  return guarded([&]() -> aiacc_status_t {
    if (take_if_over(request)) return AIACC_OK;
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
    std::size_t ended = n;
    std::vector<Held> held = pinned_requests(n, requests, &ended);
    if (ended != n) {
      if (!state().ended_requests.take(requests[ended])) throw unknown_request(requests[ended]);
      *index = ended;
      requests[ended] = AIACC_NULL;
      return AIACC_OK;
    }
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
    AllOf all(n, requests);
    if (!all.wait(limit)) {
      all.free_others();
      return AIACC_PENDING;
    }
    const std::exception_ptr error = all.free_failed();
    return error ? remember(error) : AIACC_OK;
  });
}

aiacc_status_t aiacc_request_free(aiacc_request_t request) {
  return guarded([&] {
    if (state().ended_requests.take(request)) return;
    RequestPin pin = pinned_request(request);
    if (!pin.remove()) throw unknown_request(request);
  });
}

aiacc_status_t aiacc_request_error(aiacc_request_t request, const char** sentence) {
  return guarded([&]() -> aiacc_status_t {
    if (sentence == nullptr) throw Error(Code::kInvalidArgument, "sentence is NULL: pass where the pointer shall go");
    if (state().ended_requests.find(request) != 0) {
      *sentence = "";
      return AIACC_OK;
    }
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
    if (const std::uint64_t ended = state().ended_requests.find(request); ended != 0) {
      *sequence = ended;
      return AIACC_OK;
    }
    RequestPin pin = pinned_request(request);
    *sequence = pin->sequence();
    return *sequence == 0 && !pin->done() ? AIACC_PENDING : AIACC_OK;
  });
}

}  // extern "C"
