// What loading libfabric does to a process, and providers that are not there.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "transports/active/active_fixture_test.h"
#include "transports/active/module_api.h"
#include "transports/active/module_loader.h"

namespace aiacc {
namespace {

constexpr int kNoLibfabric = 77;

// In a child, where nothing has loaded libfabric. Its exit status says what was changed.
int changed_by_loading() {
  setenv("FI_PROVIDER", "none-of-ours", 1);  // NOLINT(concurrency-mt-unsafe): a child with one thread
  io::RealLoop loop;
  try {
    const ActivePortFactory factory(loop, ofi::kLibrary, active_test::kOfiOverTcp.settings);
  } catch (const Error& error) {
    return error.message().find("no provider") == std::string::npos ? kNoLibfabric : 3;  // 3: by the user's FI_PROVIDER
  }
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGHUP, SIGABRT, SIGTERM, SIGINT}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_DFL) return 2;
  }
  return std::strcmp(std::getenv("FI_PROVIDER"), "none-of-ours") == 0 ? 0 : 4;  // NOLINT(concurrency-mt-unsafe)
}

TEST(OfiModuleDeathTest, LoadingLibfabricChangesNoSignalsAndReadsNoneOfTheUsersSettings) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto nothing_or_no_libfabric = [](int status) {
    return WIFEXITED(status) && WEXITSTATUS(status) % kNoLibfabric == 0;
  };
  EXPECT_EXIT(std::_Exit(changed_by_loading()), nothing_or_no_libfabric, "");
}

TEST(OfiModule, MemoryOnOfferHasAKeyThatWasDrawn) {
  const std::string& obstacle = active_test::obstacle(active_test::kOfiOverTcp);
  if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  const std::vector<std::string>& settings = active_test::kOfiOverTcp.settings;
  const active::Module& module = active::load(ofi::kLibrary, settings);
  active::Worker* const mine = active::open_worker(ofi::kLibrary, module, settings);
  active::Worker* const theirs = active::open_worker(ofi::kLibrary, module, settings);
  int drawn = 0;
  active::Callbacks callbacks;
  callbacks.owner = &drawn;
  callbacks.draw = [](void* count) noexcept { return std::uint64_t{0x1234567890abcdef} + ++*static_cast<int*>(count); };
  module.call_back(mine, callbacks);
  std::uint8_t address[4096];
  char problem[256] = "";
  active::Endpoint* const endpoint =
      module.connect(mine, address, module.address(theirs, address, sizeof address), nullptr, problem, sizeof problem);
  ASSERT_NE(endpoint, nullptr) << problem;
  std::vector<std::byte> bytes(1 << 20);
  const active::Extent pieces[] = {{bytes.data(), 1000}, {bytes.data() + 1000, bytes.size() - 1000}};
  active::Operation operation;
  const char* why = nullptr;
  EXPECT_EQ(module.send(endpoint, "header", 6, pieces, std::size(pieces), true, operation, &why),
            active::Began::kPending);
  EXPECT_EQ(drawn, 2) << "one for each piece";
  module.close(mine);
  module.close(theirs);
}

TEST(OfiModule, AProviderThatIsNotThereIsOneSentence) {
  const std::string obstacle = active_test::obstacle(ofi::kLibrary, {});
  if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  const std::string why = active_test::obstacle(ofi::kLibrary, {"OFI_PROVIDER=none-of-these"});
  EXPECT_TRUE(why.starts_with("the transport ofi is not available: libfabric 1.")) << why;
  EXPECT_NE(why.find("with AIACC_OFI_PROVIDER=none-of-these has no provider of none-of-these"), std::string::npos)
      << why;
}

}  // namespace
}  // namespace aiacc
