#include "base/wire/hidden.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/io/real_clock.h"
#include "base/wire/secret.h"

namespace aiacc::wire {
namespace {

// The flags in /proc/self/smaps of the mapping that contains `address` ("rd wr mr mw me ac dd").
std::string flags_of(const void* address) {
  std::ifstream smaps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    std::uintptr_t first = 0;
    std::uintptr_t last = 0;
    char dash = 0;
    std::istringstream range(line);
    if (line.find('-') < line.find(' ') && range >> std::hex >> first >> dash >> last) {
      inside = first <= wanted && wanted < last;
    }
    if (inside && line.starts_with("VmFlags:")) return line;
  }
  return "";
}

TEST(Hidden, IsInNoCoreDump) {
  io::RealEntropy entropy;
  const Secret secret = Secret::fresh(entropy);
  EXPECT_NE(flags_of(secret.bytes().data()).find(" dd"), std::string::npos) << flags_of(secret.bytes().data());
  const HiddenText text = secret.text();
  ASSERT_EQ(text.size(), Secret::kBytes);
  EXPECT_NE(flags_of(text.data()).find(" dd"), std::string::npos) << flags_of(text.data());
  const std::string plain(text);
  EXPECT_EQ(flags_of(plain.data()).find(" dd"), std::string::npos);
}

TEST(Hidden, CopiesOfASecretAreOnePlace) {
  io::RealEntropy entropy;
  const Secret first = Secret::fresh(entropy);
  Secret copy;
  EXPECT_TRUE(copy.none());
  copy = first;
  EXPECT_EQ(copy.bytes().data(), first.bytes().data());
  EXPECT_EQ(Secret::from(first.text()), first);
}

}  // namespace
}  // namespace aiacc::wire
