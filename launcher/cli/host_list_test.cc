#include "launcher/cli/host_list.h"

#include <gtest/gtest.h>

namespace aiacc::launcher {
namespace {

std::string refusal_of_file(const std::string& text) {
  try {
    parse_host_file("hosts", text);
  } catch (const UsageError& error) {
    EXPECT_EQ(error.id(), MessageId::kHosts);
    EXPECT_EQ(error.message().find('\n'), std::string::npos);
    return error.message();
  }
  ADD_FAILURE() << "accepted: " << text;
  return "";
}

TEST(HostFile, BothStyles) {
  const auto hosts = parse_host_file("hosts",
                                     "\xEF\xBB\xBF# our cluster\r\n"
                                     "a slots=4\r\n"
                                     "\n"
                                     "  b:2   # the small one\n"
                                     "c\n"
                                     "ann@d:3 port=2222\n"
                                     "[fd00::1]:2 user=bob\n"
                                     "fd00::2\tslots=8 port=22\n"
                                     "e slots=2 max_slots=4");
  EXPECT_EQ(hosts, (std::vector<HostSpec>{{"a", 4, "", 0, ""},
                                          {"b", 2, "", 0, ""},
                                          {"c", 1, "", 0, ""},
                                          {"d", 3, "ann", 2222, ""},
                                          {"fd00::1", 2, "bob", 0, ""},
                                          {"fd00::2", 8, "", 22, ""},
                                          {"e", 2, "", 0, ""}}));
  EXPECT_EQ(hosts[1].where, "line 4 of hosts");
}

TEST(HostFile, BadLinesAreNamed) {
  for (const char* bad : {"a slots=0",
                          "a slots=x",
                          "a slots=",
                          "a slots",
                          "a 4",
                          "a:0",
                          "a port=0",
                          "a port=65536",
                          "a:2 slots=2",
                          "a slots=2 slots=3",
                          "a port=1 port=2",
                          "ann@a user=bob",
                          "a user=",
                          "a max_slots=0",
                          "a user=-l",
                          "a:2:3",
                          "a:2:3 slots=2",
                          "[a:2]:3",
                          "::g",
                          "[::1%]x",
                          "-oProxyCommand=x",
                          "a;b",
                          "a slots=99999999999",
                          "@a",
                          "a@"}) {
    EXPECT_NE(refusal_of_file(std::string("ok\n") + bad + "\n").find("line 2 of hosts"), std::string::npos) << bad;
  }
  EXPECT_NE(refusal_of_file("a slot=3").find("none of slots=N"), std::string::npos);
  EXPECT_NE(refusal_of_file("a slots = 3").find("without blanks"), std::string::npos);
  EXPECT_NE(refusal_of_file("a 3").find("write slots=3"), std::string::npos);
  EXPECT_NE(refusal_of_file("host:22:4").find("is no IPv6 address"), std::string::npos);
  EXPECT_NE(refusal_of_file("gr\xc3\xbc\xc3\x9f").find("('\xc3\xbc')"), std::string::npos) << "the whole character";
  EXPECT_NE(refusal_of_file(std::string(256, 'a')).find("256 characters"), std::string::npos);
  EXPECT_LT(refusal_of_file(std::string(100'000, 'a')).size(), 300u);
}

TEST(HostFile, AnEmptyOneIsAnError) {
  for (const char* empty : {"", "\n\n", "# nothing\n  \t\n"}) {
    EXPECT_NE(refusal_of_file(empty).find("names no host"), std::string::npos);
  }
}

TEST(HostFile, AnyBytesAreReadToAnEnd) {
  std::string noise;
  for (int i = 0; i < 4096; ++i) noise += static_cast<char>(i * 7919 % 251);
  for (std::size_t length = 0; length < 300; ++length) {
    try {
      parse_host_file("hosts", noise.substr(length * 13 % 3000, length));
    } catch (const UsageError&) {
      continue;
    }
  }
}

TEST(HostList, UsersAndPlaces) {
  const auto hosts = parse_hosts("-H", "ann@a:4,b,bob@[::1]:2,fe80::1%eth0");
  EXPECT_EQ(
      hosts,
      (std::vector<HostSpec>{
          {"a", 4, "ann", 0, ""}, {"b", 1, "", 0, ""}, {"::1", 2, "bob", 0, ""}, {"fe80::1%eth0", 1, "", 0, ""}}));
  EXPECT_EQ(hosts[1].where, "-H");
}

}  // namespace
}  // namespace aiacc::launcher
