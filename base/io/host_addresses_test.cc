#include "base/io/host_addresses.h"

#include <gtest/gtest.h>

namespace aiacc::io {
namespace {

using Found = std::vector<InterfaceAddress>;
using Addresses = std::vector<std::string>;

TEST(Addresses, WhatOtherHostsCanReach) {
  const Found found = {{"lo", "127.0.0.1", false}, {"docker0", "172.17.0.1"}, {"eth0", "fd00::5"},
                       {"eth0", "10.0.0.5"},       {"ib0", "192.168.1.5"},    {"eth0", "fe80::1", false}};
  EXPECT_EQ(choose_addresses(found, ""), (Addresses{"10.0.0.5", "192.168.1.5", "fd00::5"}));
  EXPECT_EQ(choose_addresses(found, "10.9.9.9 4711 192.168.1.5 22"), (Addresses{"192.168.1.5", "10.0.0.5", "fd00::5"}));
  EXPECT_EQ(choose_addresses(found, "::1 4711 127.0.0.1 22"), (Addresses{"10.0.0.5", "192.168.1.5", "fd00::5"}));
}

TEST(Addresses, AContainersOwnPairIsTakenWhereThereIsNothingElse) {
  EXPECT_EQ(choose_addresses(Found{{"lo", "127.0.0.1", false}, {"veth3", "10.1.0.2"}}, ""), (Addresses{"10.1.0.2"}));
  EXPECT_TRUE(choose_addresses(Found{{"lo", "::1", false}}, "").empty());
}

}  // namespace
}  // namespace aiacc::io
