// The marker at the beginning of a channel to another host, and the lease that detects silence on it.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/io/real_clock.h"
#include "launcher/channel/lease.h"
#include "launcher/channel/marker.h"

namespace aiacc::launcher {
namespace {

using namespace std::chrono_literals;

TEST(Marker, IsFoundBehindABannerInAnyPieces) {
  io::RealEntropy entropy;
  const std::string marker = make_marker(entropy);
  EXPECT_NE(marker, make_marker(entropy));
  const std::string banner = "Welcome!\naiacc-agent:not this\n" + marker;
  const std::string all = banner + answer_to(marker) + "frames";
  for (std::size_t step = 1; step < all.size(); ++step) {
    MarkerScan scan(answer_to(marker));
    std::string rest;
    for (std::size_t at = 0; at < all.size(); at += step) {
      const auto found = scan.add(std::string_view(all).substr(at, step));
      if (!found) continue;
      rest = std::string(*found) + all.substr(std::min(at + step, all.size()));
      break;
    }
    EXPECT_EQ(rest, "frames") << step;
    EXPECT_EQ(scan.banner(), banner) << step;
  }
}

TEST(Marker, AnEchoIsNoAnswer) {
  MarkerScan scan(answer_to("0123456789abcdef"));
  EXPECT_FALSE(scan.add("0123456789abcdef aiacc-agent:0123456789abcdef"));
}

TEST(Marker, NoiseHasABound) {
  MarkerScan scan(answer_to("0123456789abcdef"));
  const std::string noise(kBannerLimit, 'x');
  EXPECT_FALSE(scan.add(noise));
  EXPECT_THROW(scan.add("x"), Error);
}

TEST(Lease, SilenceIsCountedInBeats) {
  Lease lease(30s);
  EXPECT_EQ(lease.interval(), 2s);
  for (int beat = 0; beat < 15; ++beat) EXPECT_FALSE(lease.tick());
  EXPECT_TRUE(lease.tick());
  lease.renew();
  EXPECT_FALSE(lease.tick());
  EXPECT_EQ(Lease(1s).interval(), 250ms);
}

}  // namespace
}  // namespace aiacc::launcher
