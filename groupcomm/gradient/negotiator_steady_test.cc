// What a scheduled step costs: no allocation. Its own unit because it replaces operator new, for the whole program.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "groupcomm/gradient/negotiator.h"

namespace {
// Of this thread.
thread_local std::uint64_t allocations = 0;
}  // namespace

void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes); memory != nullptr) return memory;
  throw std::bad_alloc();
}
// std::stable_sort takes its buffer so, and gives it back by the delete below.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace aiacc::gradient {
namespace {

constexpr std::uint32_t kSteadyTensors = 161;

// One step of the only rank; rounds and exchanges answer at once. Returns the launches.
std::size_t step(Negotiator& negotiator, std::vector<std::byte>& payload) {
  std::size_t launches = 0;
  Word word;
  const auto serve = [&] {
    Action action;
    while (negotiator.next(action)) {
      if (action.kind == Action::Kind::kLaunch) ++launches;
      if (action.kind == Action::Kind::kBegin) {
        word = *action.word;
        negotiator.result(action.round, word, Instant{});
      } else if (action.kind == Action::Kind::kExchange) {
        payload.assign(action.payload.begin(), action.payload.end());
        const std::span<const std::byte> all[] = {payload};
        negotiator.exchanged(all, Instant{});
      }
    }
  };
  for (std::uint32_t tensor = 0; tensor < kSteadyTensors; ++tensor) {
    negotiator.ready(tensor, Instant{});
    serve();
  }
  negotiator.flush(Instant{});
  serve();
  return launches;
}

TEST(NegotiatorSteady, AllocatesNothing) {
  for (const int schedule_steps : {2, -1}) {
    NegotiatorOptions options;
    options.schedule_steps = schedule_steps;
    options.round_bytes = options.fusion_bytes = 1000;
    Negotiator negotiator(options);
    for (std::uint32_t tensor = 0; tensor < kSteadyTensors; ++tensor)
      negotiator.add({"tensor " + std::to_string(tensor), 100, 1, true, "float32"});
    std::vector<std::byte> payload;
    for (int warm = 0; warm < 10; ++warm) step(negotiator, payload);
    EXPECT_EQ(negotiator.scheduled(), schedule_steps > 0);
    // A word that the test copies is one allocation of a step that has rounds.
    const std::uint64_t before = allocations, rounds = negotiator.stats().rounds;
    const std::size_t launches = step(negotiator, payload);
    EXPECT_GE(launches, 17U);
    EXPECT_LE(allocations - before, negotiator.stats().rounds == rounds ? 0U : 1U);
  }
}

}  // namespace
}  // namespace aiacc::gradient
