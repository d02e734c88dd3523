// BiasedCount: how many users an object has beside its owners, where one thread at a time adds nearly all of them and any thread ends
// them, many at once (biased reference counting: Choi, Shull, Torrellas, PACT 2018). An addition there costs no atomic operation. The
// object is over when its owners are gone and no user is left, and exactly one caller learns that.
#pragma once

#include <atomic>
#include <cstdint>

namespace aiacc {

class BiasedCount {
 public:
  BiasedCount() = default;
  BiasedCount(const BiasedCount&) = delete;
  BiasedCount& operator=(const BiasedCount&) = delete;

  // While there are owners. One thread at a time, as the caller sees to.
  void add_here() noexcept { ++here_; }
  // Any thread.
  void add() noexcept { shared_.fetch_add(1, std::memory_order_relaxed); }

  // True: the caller ends the object. Both release what was done with the object before and acquire what others did.
  bool end(std::int64_t users) noexcept { return shared_.fetch_sub(users, std::memory_order_acq_rel) == users; }
  // Once, after which nobody adds.
  bool owners_are_gone() noexcept {
    const std::int64_t change = here_ - kOwned;
    return shared_.fetch_add(change, std::memory_order_acq_rel) == -change;
  }

 private:
  // More than there can be users: so the sum is not 0 before the owners are gone.
  static constexpr std::int64_t kOwned = std::int64_t{1} << 62;

  std::int64_t here_ = 0;
  std::atomic<std::int64_t> shared_{kOwned};
};

}  // namespace aiacc
