// What loading UCX does to a process, and modules that cannot be used.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "transports/active/active_fixture_test.h"
#include "transports/active/module_loader.h"

namespace aiacc {
namespace {

std::string refusal(const char* file) {
  try {
    active::load_from(ucx::kLibrary, file, {});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnsupported);
    return error.message();
  }
  return "it was taken";
}

TEST(UcxModule, AMissingModuleIsOneSentence) {
  const std::string why = refusal("aiacc-no-such-module.so");
  EXPECT_TRUE(why.starts_with("the transport ucx is not available: aiacc-no-such-module.so: cannot open")) << why;
}

TEST(UcxModule, ALibraryThatIsNoModuleIsOneSentence) {
  const std::string why = refusal("libm.so.6");
  EXPECT_NE(why.find("undefined symbol: aiacc_ucx_module"), std::string::npos) << why;
}

constexpr int kNoUcx = 77;

struct Folder {
  std::filesystem::path path = [] {
    std::string name = std::filesystem::canonical(std::filesystem::temp_directory_path()) / "aiacc-XXXXXX";
    return mkdtemp(name.data()) == nullptr ? std::string() : name;
  }();
  ~Folder() { std::filesystem::remove_all(path); }
};

// In a child, where nothing has loaded UCX. Its exit status says what was changed.
// NOLINTBEGIN(concurrency-mt-unsafe): the child has one thread
int changed_by_loading() {
  unsigned char before[2][16];
  std::memcpy(before[0], reinterpret_cast<const void*>(dlsym(RTLD_DEFAULT, "mmap")), 16);
  std::memcpy(before[1], reinterpret_cast<const void*>(dlsym(RTLD_DEFAULT, "brk")), 16);
  setenv("UCX_TLS", "none-of-ours", 1);
  setenv("UCX_HANDLE_ERRORS", "bt", 1);
  setenv("UCX_MEM_EVENTS", "y", 1);
  const Folder folder;
  std::ofstream(folder.path / "ucx.conf") << "UCX_NET_DEVICES=none-of-ours\n";
  std::filesystem::current_path(folder.path);
  io::RealLoop loop;
  try {
    const ActivePortFactory factory(loop, ucx::kLibrary);
  } catch (const Error& error) {
    return error.message().find("no context") == std::string::npos ? kNoUcx : 6;  // 6: by the user's settings
  }
  if (std::memcmp(before[0], reinterpret_cast<const void*>(dlsym(RTLD_DEFAULT, "mmap")), 16) != 0) return 2;
  if (std::memcmp(before[1], reinterpret_cast<const void*>(dlsym(RTLD_DEFAULT, "brk")), 16) != 0) return 3;
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGHUP, SIGABRT}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_DFL) return 4;
  }
  if (std::filesystem::current_path() != folder.path) return 7;
  return std::strcmp(std::getenv("UCX_TLS"), "none-of-ours") == 0 ? 0 : 5;
}
// NOLINTEND(concurrency-mt-unsafe)

TEST(UcxModuleDeathTest, LoadingUcxChangesNeitherSignalsNorFunctionsAndReadsNoneOfTheUsersSettings) {
  // Nothing may have loaded UCX in the child, which runs this test from its beginning.
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto nothing_or_no_ucx = [](int status) { return WIFEXITED(status) && WEXITSTATUS(status) % kNoUcx == 0; };
  EXPECT_EXIT(std::_Exit(changed_by_loading()), nothing_or_no_ucx, "");
}

// A copy of the module in which the version that it was built with is another one.
TEST(UcxModule, AModuleOfAnotherVersionIsOneSentence) {
  const std::string obstacle = active_test::obstacle(ucx::kLibrary, {});
  if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  const active::Module& module = active::load(ucx::kLibrary, {});
  Dl_info where{};
  ASSERT_NE(dladdr(&module, &where), 0);
  std::ifstream original(where.dli_fname, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(original), {});
  const std::string version = module.library_version, other = "9" + version.substr(1);
  std::size_t altered = 0;
  for (std::size_t at = 0; (at = bytes.find(version + '\0', at)) != std::string::npos; ++altered) bytes[at] = '9';
  ASSERT_GT(altered, 0u);
  const Folder folder;
  const std::string copy = folder.path / "aiacc-ucx.so";
  std::ofstream(copy, std::ios::binary) << bytes;
  const std::string why = refusal(copy.c_str());
  EXPECT_NE(why.find(copy + " is of aiacc " + other + " (interface "), std::string::npos) << why;
  EXPECT_NE(why.find("and this library is " + version + " (interface "), std::string::npos) << why;
}

// By a setting whose every number is refused; check-roce sees the packets.
TEST(UcxModule, TheMarkOfAClassIsASettingOfItsWorker) {
  const std::string obstacle = active_test::obstacle(ucx::kLibrary, {});
  if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  active::Library library = ucx::kLibrary;
  library.traffic_class = "UCX_TLS";
  ActivePortFactory::Marks marks;
  marks[static_cast<std::size_t>(TrafficClass::kBulk)] = io::TrafficMarks::parse("AIACC_TC_BULK", "dscp=10");
  io::RealLoop loop;
  try {
    const ActivePortFactory factory(loop, library, {}, marks);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("with AIACC_UCX_TLS=40 has no context: "), std::string::npos) << error.message();
  }
}

TEST(UcxModule, SettingsThatLeaveNoTransportAreOneSentence) {
  const std::string obstacle = active_test::obstacle(ucx::kLibrary, {});
  if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  const std::string why = active_test::obstacle(ucx::kLibrary, {"UCX_TLS=none-of-these"});
  EXPECT_TRUE(why.starts_with("the transport ucx is not available: UCX 1.")) << why;
  EXPECT_NE(why.find("with AIACC_UCX_TLS=none-of-these has no context: "), std::string::npos) << why;
}

}  // namespace
}  // namespace aiacc
