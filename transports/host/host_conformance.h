// What every HostDomain must do. The tests are host_conformance.cc; the test of an implementation includes this:
//
//   INSTANTIATE_TEST_SUITE_P(Memfd, HostConformance, ::testing::Values(&make_memfd_under_test));
//
// The members must have separate mappings: on a shared one, a missing fence would go unnoticed.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "transports/host/host_domain.h"

namespace aiacc {

class HostUnderTest {
 public:
  virtual ~HostUnderTest() = default;
  virtual int size() const = 0;
  virtual HostDomain& member(int rank) = 0;
  // Drives all loops until every task ended; rethrows the first error.
  virtual void run(std::vector<Task<void>> tasks) = 0;
};
// Creates a host with `members` members.
using MakeHostUnderTest = std::unique_ptr<HostUnderTest> (*)(int members);

namespace host_conformance {

using namespace std::chrono_literals;

inline Code code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  return Code::kOk;
}

inline Task<void> ping_pong(HostDomain& host, int peer, std::uint32_t line, std::uint64_t rounds, bool serve) {
  Stop stop;
  Deadline deadline(host.loop(), after(host.loop().now(), 60s), stop, "the peer does not answer");
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    if (serve) host.publish(line, 0, round);
    const FlagRef flag{peer, line, 0};
    co_await host.at_least(flag, round, stop);
    if (!serve) host.publish(line, 0, round);
  }
}

inline Task<void> publish_later(HostDomain& host, Duration span, std::uint32_t line, std::uint32_t word,
                                std::uint64_t value) {
  Stop never;
  co_await sleep_for(host.loop(), span, never);
  host.publish(line, word, value);
}

// Waits for the flag at most `limit`; `result` is kOk or the error's code.
inline Task<void> wait_for(HostDomain& host, FlagRef flag, std::uint64_t value, Duration limit, Code& result) {
  Stop stop;
  Deadline deadline(host.loop(), after(host.loop().now(), limit), stop, "the flag was not raised");
  result = Code::kOk;
  try {
    co_await host.at_least(flag, value, stop);
  } catch (const Error& error) {
    result = error.code();
  }
}

inline Task<void> quiesce(HostDomain& host, std::uint64_t operation, HostRange range, Duration& took) {
  const Instant began = host.loop().now();
  co_await host.quiesce(operation, range);
  took = host.loop().now() - began;
}

inline Task<void> end_stores_later(HostDomain& host, Duration span) {
  Stop never;
  co_await sleep_for(host.loop(), span, never);
  host.end_stores();
}

inline Task<void> mark_dead_later(HostDomain& host, Duration span, int rank) {
  Stop never;
  co_await sleep_for(host.loop(), span, never);
  host.mark_dead(rank);
}

inline Task<void> claim_later(HostDomain& host, Duration span, std::uint64_t key, std::uint32_t count) {
  Stop never;
  co_await sleep_for(host.loop(), span, never);
  host.claim_lines(key, count);
}

}  // namespace host_conformance

class HostConformance : public ::testing::TestWithParam<MakeHostUnderTest> {
 protected:
  void make(int members) { host_ = GetParam()(members); }
  HostDomain& member(int rank) { return host_->member(rank); }
  template <class... Tasks>
  void run(Tasks... tasks) {
    std::vector<Task<void>> all;
    (all.push_back(std::move(tasks)), ...);
    host_->run(std::move(all));
  }
  // Claims lines at the same index on every member, so that peers need no lookup.
  std::uint32_t claim_everywhere(std::uint64_t key, std::uint32_t count) {
    for (int rank = 0; rank < host_->size(); ++rank) member(rank).claim_lines(key, count);
    return *member(0).find_lines(0, key, 1);
  }

  std::unique_ptr<HostUnderTest> host_;
};

}  // namespace aiacc
