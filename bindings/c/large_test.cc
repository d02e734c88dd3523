// A count above 2^31, in one configuration that fits into memory: two ranks, one byte per element.
#include <cstring>
#include <fstream>
#include <string>

#include "tests/abi_world.h"

namespace aiacc {
namespace {

std::size_t available_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string name;
  std::size_t kib = 0;
  for (std::string rest; meminfo >> name >> kib && name != "MemAvailable:";) std::getline(meminfo, rest);
  return kib * 1024;
}

TEST(Large, MoreElementsThan31BitsCount) {
  constexpr std::size_t kCount = (std::size_t{1} << 31) + 4099;
  if (test::kSanitized) GTEST_SKIP() << "takes minutes under a sanitizer";
  // Both ranks' buffers, and as much again for other processes.
  if (available_bytes() < 4 * kCount)
    GTEST_SKIP() << "needs 8 GiB of memory, " << (available_bytes() >> 20) << " MiB are free";
  const test::World world(2);
  world.run([&](int rank, aiacc_group_t group) {
    void* memory = nullptr;
    const aiacc_status_t status = aiacc_mem_alloc(world.context(rank), kCount, &memory);
    EXPECT_EQ(status, AIACC_OK) << aiacc_last_error();
    int good = status == AIACC_OK;
    ASSERT_AIACC(aiacc_allreduce(&good, &good, 1, AIACC_INT32, AIACC_MIN, group, nullptr, nullptr));
    if (good == 0) return;
    auto* data = static_cast<std::uint8_t*>(memory);
    std::memset(data, rank + 1, kCount);
    data[kCount - 1] = static_cast<std::uint8_t>(10 * (rank + 1));
    EXPECT_AIACC(aiacc_allreduce(data, data, kCount, AIACC_UINT8, AIACC_SUM, group, nullptr, nullptr));
    for (const std::size_t at :
         {std::size_t{0}, std::size_t{1} << 30, (std::size_t{1} << 31) - 1, std::size_t{1} << 31, kCount - 2}) {
      EXPECT_EQ(data[at], 3) << at;
    }
    EXPECT_EQ(data[kCount - 1], 30);
    // A block that begins beyond 2^31: rank 1's, at the end of the buffer.
    const std::size_t counts[] = {kCount - 5, 5};
    std::memset(data + kCount - 5, 40 + rank, 5);
    EXPECT_AIACC(aiacc_allgatherv(rank == 0 ? data : data + counts[0], counts[rank], data, counts, nullptr, AIACC_UINT8,
                                  group, nullptr, nullptr));
    EXPECT_EQ(data[kCount - 1], 41);
    EXPECT_AIACC(aiacc_mem_free(memory));
  });
}

}  // namespace
}  // namespace aiacc
