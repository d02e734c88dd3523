// Registration of the caller's own memory: it populates pages, keeps their content, and refuses memory that is not
// mapped.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>

#include "base/mapping.h"
#include "tests/abi_world.h"

namespace aiacc {
namespace {

using test::expect;
using test::World;

const std::size_t kPage = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
constexpr auto kBad = AIACC_ERR_INVALID_ARGUMENT;

Mapping pages(std::size_t n, int protection = PROT_READ | PROT_WRITE) {
  Mapping made = Mapping::make(n * kPage, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  EXPECT_TRUE(made);
  madvise(made.data(), n * kPage, MADV_NOHUGEPAGE);  // no huge pages
  return made;
}

std::size_t present(const Mapping& memory) {
  std::vector<unsigned char> resident(memory.bytes() / kPage);
  EXPECT_EQ(mincore(memory.data(), memory.bytes(), resident.data()), 0);
  return static_cast<std::size_t>(std::count(resident.begin(), resident.end(), 1));
}

bool populates() { return madvise(nullptr, 0, MADV_POPULATE_WRITE) == 0; }

TEST(Registration, TakesThePagesAndKeepsWhatIsInThem) {
  World world(1);
  // The library examines 16,384 pages at a time, so this takes more than one step.
  const Mapping memory = pages(20'000);
  memory.data()[5 * kPage] = std::byte{42};
  ASSERT_EQ(present(memory), 1u);
  aiacc_registration_t part = AIACC_NULL;
  // From the middle of a page into the next one.
  ASSERT_AIACC(aiacc_mem_register(world.context(0), memory.data() + 4 * kPage + 7, kPage, &part));
  if (populates()) {
    EXPECT_EQ(present(memory), 2u);
  }
  aiacc_registration_t whole = AIACC_NULL;
  ASSERT_AIACC(aiacc_mem_register(world.context(0), memory.data(), memory.bytes(), &whole));
  if (populates()) {
    EXPECT_EQ(present(memory), 20'000u);
  }
  EXPECT_EQ(memory.data()[5 * kPage], std::byte{42});
  EXPECT_AIACC(aiacc_mem_deregister(part));
  EXPECT_AIACC(aiacc_mem_deregister(whole));
}

TEST(Registration, MayOverlapAndEachEndsByItself) {
  World world(1);
  std::vector<float> data(10'000, 2.0f);
  aiacc_registration_t first = AIACC_NULL;
  aiacc_registration_t again = AIACC_NULL;
  ASSERT_AIACC(aiacc_mem_register(world.context(0), data.data(), data.size() * sizeof(float), &first));
  ASSERT_AIACC(aiacc_mem_register(world.context(0), data.data(), data.size() * sizeof(float), &again));
  EXPECT_NE(first, again);
  EXPECT_AIACC(aiacc_mem_deregister(first));
  expect(aiacc_mem_deregister(first), AIACC_ERR_INVALID_HANDLE, "does not exist any more");
  EXPECT_AIACC(aiacc_mem_deregister(again));
  EXPECT_EQ(std::count(data.begin(), data.end(), 2.0f), 10'000);
  void* shared = nullptr;
  ASSERT_AIACC(aiacc_mem_alloc(world.context(0), 100, &shared));
  EXPECT_AIACC(aiacc_mem_register(world.context(0), shared, 100, &first)) << "that of aiacc_mem_alloc too";
  EXPECT_AIACC(aiacc_mem_deregister(first));
  EXPECT_AIACC(aiacc_mem_free(shared));
}

TEST(Registration, IsRefusedWithASentence) {
  World world(1);
  const aiacc_context_t context = world.context(0);
  const Mapping memory = pages(4);
  aiacc_registration_t registration = 77;
  expect(aiacc_mem_register(context, nullptr, kPage, &registration), kBad, "memory is NULL");
  expect(aiacc_mem_register(context, memory.data(), 0, &registration), kBad, "bytes is 0");
  expect(aiacc_mem_register(context, memory.data(), kPage, nullptr), kBad, "registration is NULL");
  expect(aiacc_mem_register(context, memory.data(), SIZE_MAX, &registration), kBad, "address space");
  expect(aiacc_mem_register(context, memory.data(), SIZE_MAX - reinterpret_cast<std::uintptr_t>(memory.data()),
                            &registration),
         kBad, "address space");
  expect(aiacc_mem_register(context, memory.data(), SIZE_MAX / 2, &registration), kBad, "not mapped");
  expect(aiacc_mem_register(world.group(0), memory.data(), kPage, &registration), AIACC_ERR_INVALID_HANDLE,
         "not the handle of a context");
  expect(aiacc_mem_deregister(context), AIACC_ERR_INVALID_HANDLE, "not the handle of a registration");
  expect(aiacc_mem_deregister(AIACC_NULL), AIACC_ERR_INVALID_HANDLE, "not the handle of a registration");

  // A hole in the third page.
  ASSERT_EQ(munmap(memory.data() + 2 * kPage, kPage), 0);
  expect(aiacc_mem_register(context, memory.data(), 4 * kPage, &registration), kBad, "is not mapped");
  char hole[32];
  snprintf(hole, sizeof hole, "page at %p ", static_cast<void*>(memory.data() + 2 * kPage));
  EXPECT_NE(std::string(aiacc_last_error()).find(hole), std::string::npos) << hole << ": " << aiacc_last_error();
  EXPECT_EQ(registration, 77u) << "no handle is made";
  ASSERT_AIACC(aiacc_mem_register(context, memory.data(), 2 * kPage, &registration)) << "up to the hole";
  EXPECT_AIACC(aiacc_mem_deregister(registration));
}

TEST(Registration, IsOfMemoryThatCanBeWritten) {
  if (!populates()) GTEST_SKIP() << "this kernel takes no pages ahead (before Linux 5.14)";
  World world(1);
  const Mapping read_only = pages(2, PROT_READ);
  aiacc_registration_t registration = AIACC_NULL;
  expect(aiacc_mem_register(world.context(0), read_only.data(), kPage, &registration), kBad, "writable");
  const int file = memfd_create("short", MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, static_cast<off_t>(kPage)), 0);
  const Mapping beyond = Mapping::make(2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file);
  close(file);
  expect(aiacc_mem_register(world.context(0), beyond.data(), 2 * kPage, &registration), kBad, "shorter");
}

TEST(Registration, BeyondTheMemoryOfTheHostIsRefusedBeforeAPageIsTaken) {
  World world(1);
  const Mapping huge =
      Mapping::make(std::size_t{1} << 44, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  if (!huge) GTEST_SKIP() << "16 TiB of address space are not to be had";
  aiacc_registration_t registration = AIACC_NULL;
  expect(aiacc_mem_register(world.context(0), huge.data(), huge.bytes(), &registration), AIACC_ERR_OUT_OF_MEMORY,
         "of the 16 TiB from");
}

TEST(Registration, GoesWithItsContext) {
  World world(2);
  world.forget();
  std::vector<char> data(3 * kPage);
  aiacc_registration_t one = AIACC_NULL;
  aiacc_registration_t other = AIACC_NULL;
  ASSERT_AIACC(aiacc_mem_register(world.context(0), data.data(), data.size(), &one));
  ASSERT_AIACC(aiacc_mem_register(world.context(1), data.data(), data.size(), &other));
  std::thread second([&] { EXPECT_AIACC(aiacc_context_destroy(world.context(1))); });
  EXPECT_AIACC(aiacc_context_destroy(world.context(0)));
  second.join();
  expect(aiacc_mem_deregister(one), AIACC_ERR_INVALID_HANDLE, "does not exist any more");
  expect(aiacc_mem_deregister(other), AIACC_ERR_INVALID_HANDLE, "does not exist any more");
}

TEST(Registration, IsRefusedInAForkedChild) {
  World world(1);
  std::vector<char> data(100);
  aiacc_registration_t registration = AIACC_NULL;
  ASSERT_AIACC(aiacc_mem_register(world.context(0), data.data(), data.size(), &registration));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    aiacc_registration_t made = AIACC_NULL;
    expect(aiacc_mem_register(world.context(0), data.data(), 1, &made), AIACC_ERR_INVALID_STATE, "forked child");
    expect(aiacc_mem_deregister(registration), AIACC_ERR_INVALID_STATE, "forked child");
    fflush(stdout);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  EXPECT_AIACC(aiacc_mem_deregister(registration));
}

}  // namespace
}  // namespace aiacc
