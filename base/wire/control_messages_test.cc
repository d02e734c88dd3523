// The messages between the libraries of two ranks, against the test vectors of the specification.
#include "base/wire/control_messages.h"

#include <gtest/gtest.h>

#include "base/wire/documented_vectors.h"

namespace aiacc::wire {
namespace {

// As the payload of a control message.
template <Message T>
std::string control(const T& message) {
  Bytes bytes;
  Writer(bytes).put(T::kType);
  Writer(bytes).put(message);
  return hex(bytes);
}

TEST(ControlMessages, TheVectorsOfTheSpecificationHold) {
  auto documented = documented_vectors("Control and service messages");
  if (!documented) GTEST_SKIP() << "AIACC_SOURCE does not say where the sources are";
  constexpr std::uint64_t kFingerprint = 0xfedcba9876543210;
  std::map<std::string, std::string> computed;
  computed["group aborted"] = control(GroupAborted{9, 3, 1, {1, 3, 5}, "rank 1 called a barrier"});
  computed["calls differ"] = control(CallsDiffer{kFingerprint, "allreduce of 8 fp32"});
  computed["where is"] = control(WhereIs{kFingerprint, WhereIs::kSend, "a barrier"});
  computed["operation state"] = control(OperationState{OperationState::kWorking, -1});
  computed["whom from"] = control(WhomFrom{});
  computed["receives from"] = control(ReceivesFrom{ReceivesFrom::kAnyRank, "recv of 1 fp32"});
  computed["leaving"] = control(Leaving{});
  computed["leaving heard"] = control(LeavingHeard{});
  computed["service refused"] =
      hex(encode(ServiceRefused{7, 0x0123456789abcdef, 100'000, ServiceRefused::kCredit, 8192}));
  for (const auto& [name, bytes] : computed) EXPECT_EQ((*documented)[name], bytes) << name;
}

template <Message T>
void expect_read_again(const std::string& digits) {
  const Bytes all = bytes_of_hex(digits);
  ASSERT_GE(all.size(), sizeof(std::uint16_t));
  const std::span<const std::byte> fields = std::span(all).subspan(sizeof(std::uint16_t));
  EXPECT_EQ(control(decode<T>(fields, "a control message")), digits);
  for (std::size_t length = 0; length < fields.size(); ++length) {
    EXPECT_THROW(decode<T>(fields.first(length), "a control message"), Error) << length;
  }
}

TEST(ControlMessages, WhatTheSpecificationHasIsReadAndWrittenAgain) {
  auto documented = documented_vectors("Control and service messages");
  if (!documented) GTEST_SKIP() << "AIACC_SOURCE does not say where the sources are";
  expect_read_again<GroupAborted>((*documented)["group aborted"]);
  expect_read_again<CallsDiffer>((*documented)["calls differ"]);
  expect_read_again<WhereIs>((*documented)["where is"]);
  expect_read_again<OperationState>((*documented)["operation state"]);
  expect_read_again<WhomFrom>((*documented)["whom from"]);
  expect_read_again<ReceivesFrom>((*documented)["receives from"]);
  expect_read_again<Leaving>((*documented)["leaving"]);
  expect_read_again<LeavingHeard>((*documented)["leaving heard"]);
  const std::string& refused = (*documented)["service refused"];
  EXPECT_EQ(hex(encode(decode<ServiceRefused>(bytes_of_hex(refused), "a refusal"))), refused);
}

}  // namespace
}  // namespace aiacc::wire
