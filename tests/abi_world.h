// For tests: a world of threads as ranks through the C ABI.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "include/aiacc/aiacc.h"

// EXPECT that a call succeeded; prints the last error if not.
#define EXPECT_AIACC(call) EXPECT_EQ((call), AIACC_OK) << aiacc_last_error()
#define ASSERT_AIACC(call) ASSERT_EQ((call), AIACC_OK) << aiacc_last_error()

namespace aiacc::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;  // a sanitizer leaves memory and time for a tenth of the work
#else
inline constexpr bool kSanitized = false;
#endif

// Whether the sentence of this thread's last failed call contains `word`.
inline bool says(const std::string& word) { return std::string(aiacc_last_error()).find(word) != std::string::npos; }

// Expects that status, and a sentence that contains `word`.
inline void expect(aiacc_status_t have, aiacc_status_t want, const char* word) {
  EXPECT_EQ(have, want) << aiacc_last_error();
  EXPECT_TRUE(says(word)) << aiacc_last_error();
}

inline aiacc_group_t group_of(aiacc_group_t parent, const std::vector<int>& ranks,
                              const aiacc_group_attr_t* attr = nullptr) {
  aiacc_group_t group = AIACC_NULL;
  EXPECT_AIACC(aiacc_group_create(parent, ranks.size(), ranks.data(), attr, &group));
  return group;
}

class World {
 public:
  explicit World(std::size_t ranks) : contexts_(ranks) {
    EXPECT_AIACC(aiacc_context_create_local(ranks, contexts_.data()));
  }
  ~World() {
    if (destroyed_) return;
    run([this](int rank, aiacc_group_t) { EXPECT_AIACC(aiacc_context_destroy(context(rank))); });
  }

  aiacc_context_t context(int rank) const { return contexts_[static_cast<std::size_t>(rank)]; }
  aiacc_group_t group(int rank) const {
    aiacc_group_t world = AIACC_NULL;
    EXPECT_AIACC(aiacc_context_world(context(rank), &world));
    return world;
  }
  int size() const { return static_cast<int>(contexts_.size()); }
  void forget() { destroyed_ = true; }  // the test has destroyed the contexts itself

  // Runs `body` for each rank in a thread of its own.
  void run(const std::function<void(int rank, aiacc_group_t world)>& body) const {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) {
      const aiacc_group_t world = group(rank);
      threads.emplace_back([&body, rank, world] { body(rank, world); });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<aiacc_context_t> contexts_;
  bool destroyed_ = false;
};

}  // namespace aiacc::test
