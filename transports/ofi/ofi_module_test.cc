// What loading libfabric does to a process, and providers that are not there.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "transports/active/active_fixture_test.h"

namespace aiacc {
namespace {

constexpr int kNoLibfabric = 77;

// In a child, where nothing has loaded libfabric. Its exit status says what was changed.
int changed_by_loading() {
  setenv("FI_PROVIDER", "none-of-ours", 1);
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
  return std::strcmp(std::getenv("FI_PROVIDER"), "none-of-ours") == 0 ? 0 : 4;
}

TEST(OfiModuleDeathTest, LoadingLibfabricChangesNoSignalsAndReadsNoneOfTheUsersSettings) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto nothing_or_no_libfabric = [](int status) {
    return WIFEXITED(status) && WEXITSTATUS(status) % kNoLibfabric == 0;
  };
  EXPECT_EXIT(std::_Exit(changed_by_loading()), nothing_or_no_libfabric, "");
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
