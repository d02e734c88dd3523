// The test vectors of the specification for messages between aiaccrun and agents: those that other versions must read,
// and those that carry standard input.
#include "base/wire/launch_messages.h"

#include <gtest/gtest.h>

#include "base/wire/documented_vectors.h"
#include "base/wire/frame.h"

namespace aiacc::wire {
namespace {

TEST(LaunchVectors, AreThoseOfTheSpecification) {
  const auto documented = documented_vectors("Launch stream");
  if (!documented) GTEST_SKIP() << "AIACC_SOURCE does not say where the specification is";
  Greeting greeting;
  greeting.version = "0.1.0";
  greeting.marker = "0123456789abcdef";
  greeting.lease_ms = 30'000;
  AgentUp up;
  up.version = "0.1.0";
  up.addresses = {"192.0.2.7", "2001:db8::7"};
  up.master_port = 40'112;
  up.machine = "node-7";
  up.same_host_socket = "aiacc-0123456789abcdef";
  up.token = "abcdefghijklmnopqrstuvwxyz012345";
  Input input;
  input.bytes = std::string("two\nlines\n\0\xff", 12);
  InputCredit credit;
  credit.bytes = 262'144;
  const std::map<std::string, std::string> ours = {
      {"greeting", hex(encode_frame(greeting))},   {"agent up", hex(encode_frame(up))},
      {"input", hex(encode_frame(input))},         {"end of input", hex(encode_frame(Input{}))},
      {"input credit", hex(encode_frame(credit))}, {"input closed", hex(encode_frame(InputClosed{}))}};
  EXPECT_EQ(*documented, ours);
}

TEST(LaunchVectors, AreRead) {
  const auto documented = documented_vectors("Launch stream");
  if (!documented) GTEST_SKIP() << "AIACC_SOURCE does not say where the specification is";
  FrameBuffer buffer;
  for (const char* name : {"greeting", "input"}) {
    const Bytes bytes = bytes_of_hex(documented->at(name));
    std::copy(bytes.begin(), bytes.end(), buffer.space().begin());
    buffer.commit(bytes.size());
  }
  const auto greeting = buffer.next().value().as<Greeting>();
  EXPECT_EQ(greeting.protocol, kLaunchProtocol);
  EXPECT_EQ(greeting.lease_ms, 30'000);
  EXPECT_EQ(buffer.next().value().as<Input>().bytes, std::string("two\nlines\n\0\xff", 12));
}

}  // namespace
}  // namespace aiacc::wire
