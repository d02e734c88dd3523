#include "transports/host/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <string>

#include "base/error.h"
#include "transports/host/memory_room.h"

namespace aiacc {
namespace {

std::string sentence_of(const std::function<void()>& action, Code code) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.message();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

ReadFile files(std::map<std::string, std::string> content) {
  return [content = std::move(content)](const std::string& path) -> std::optional<std::string> {
    const auto file = content.find(path);
    if (file == content.end()) return std::nullopt;
    return file->second;
  };
}

// `action` in a child process under a limit, which cannot be raised again; its exit code.
int under_limit(__rlimit_resource resource, rlim_t bytes, const std::function<int()>& action) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{bytes, bytes};
    setrlimit(resource, &limit);
    _exit(action());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(Segment, IsProvedByItsNonce) {
  const HostSegment segment = HostSegment::create(3, 1 << 20, 42);
  const auto mapping = SegmentMapping::map(segment.descriptor(), 42, 3);
  EXPECT_EQ(mapping->header().ranks, 3u);
  EXPECT_EQ(mapping->slice(2) - mapping->slice(1), static_cast<std::ptrdiff_t>(mapping->slice_bytes()));
  EXPECT_NE(sentence_of([&] { SegmentMapping::map(segment.descriptor(), 43, 3); }, Code::kProtocol).find("nonce"),
            std::string::npos);
  EXPECT_NE(sentence_of([&] { SegmentMapping::map(segment.descriptor(), 42, 4); }, Code::kProtocol).find("for 4 ranks"),
            std::string::npos);
  sentence_of([] { SegmentMapping::map(0, 42, 3); }, Code::kProtocol);
}

// What somebody else made and calls a segment.
Fd forged(std::uint64_t file_bytes, std::uint64_t slice_bytes, int seals) {
  Fd memfd(memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(memfd.get(), static_cast<off_t>(file_bytes)), 0);
  SegmentHeader header;
  header.ranks = 2;
  header.nonce = 42;
  header.slice_bytes = slice_bytes;
  EXPECT_EQ(pwrite(memfd.get(), static_cast<const void*>(&header), sizeof header, 0), ssize_t{sizeof header});
  EXPECT_EQ(fcntl(memfd.get(), F_ADD_SEALS, seals), 0);
  return memfd;
}

TEST(Segment, IsNotMappedUnlessItsSizeIsRightAndSealed) {
  constexpr std::uint64_t kSlice = std::uint64_t{4} << 20;
  const std::uint64_t whole = SegmentMapping::total_bytes(2, kSlice);
  const auto refusal = [](const Fd& memfd) {
    return sentence_of([&] { SegmentMapping::map(memfd.get(), 42, 2); }, Code::kProtocol);
  };
  EXPECT_NE(SegmentMapping::map(forged(whole, kSlice, F_SEAL_SHRINK).get(), 42, 2), nullptr);
  EXPECT_NE(refusal(forged(whole, kSlice, 0)).find("F_SEAL_SHRINK"), std::string::npos) << "its maker could cut it";
  EXPECT_NE(refusal(forged(whole, kSlice, F_SEAL_GROW)).find("F_SEAL_SHRINK"), std::string::npos);
  for (const std::uint64_t bytes : {whole - 4096, std::uint64_t{4096}}) {
    const std::string text = refusal(forged(bytes, kSlice, F_SEAL_SHRINK));
    EXPECT_NE(text.find(std::to_string(bytes) + " bytes"), std::string::npos) << text;
  }
  for (const std::uint64_t slice : {std::uint64_t{0}, kSlice + 4096, std::uint64_t{1} << 47, std::uint64_t{1} << 63}) {
    const std::string text = refusal(forged(whole, slice, F_SEAL_SHRINK));
    EXPECT_NE(text.find(std::to_string(slice) + " bytes each"), std::string::npos) << text;
  }
}

TEST(Segment, TakesNoMemoryBeforeItIsUsed) {
  // Of a few ranks: the thread sanitizer leaves little address space.
  const HostSegment segment = HostSegment::create(4, 0, 1);
  const auto mapping = SegmentMapping::map(segment.descriptor(), 1, 4);
  EXPECT_GE(mapping->slice_bytes(), std::uint64_t{1} << 30);
}

TEST(Segment, RefusesAFileSizeLimitWithBothNumbers) {
  const int code = under_limit(RLIMIT_FSIZE, 1 << 20, [] {
    const std::string text = sentence_of([] { HostSegment::create(2, 1 << 30, 1); }, Code::kOutOfMemory);
    return text.find("ulimit -f") != std::string::npos && text.find("1 MiB") != std::string::npos &&
                   text.find("GiB") != std::string::npos
               ? 0
               : 1;
  });
  EXPECT_EQ(code, 0);
}

TEST(Segment, RefusesAnAddressSpaceLimitWithBothNumbers) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's own memory does not fit into a limited address space";
#endif
  const int code = under_limit(RLIMIT_AS, std::uint64_t{1} << 30, [] {
    const HostSegment segment = HostSegment::create(2, std::uint64_t{8} << 30, 1);
    const std::string text = sentence_of([&] { SegmentMapping::map(segment.descriptor(), 1, 2); }, Code::kOutOfMemory);
    return text.find("ulimit -v") != std::string::npos && text.find("1 GiB") != std::string::npos ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
}

const char* const kMountsV2 = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
const char* const kMountsV1 = "31 1 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

TEST(MemoryRoom, IsTheLeastOfEveryAncestor) {
  const MemoryRoom room = memory_room(files({{"/proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable:    4096 kB\n"},
                                             {"/proc/self/cgroup", "0::/job/step\n"},
                                             {"/proc/self/mountinfo", kMountsV2},
                                             {"/sys/fs/cgroup/job/step/memory.max", "max\n"},
                                             {"/sys/fs/cgroup/job/memory.max", "3145728\n"},
                                             {"/sys/fs/cgroup/job/memory.current", "2097152\n"},
                                             {"/sys/fs/cgroup/job/memory.stat", "anon 1\nactive_file 1048576\n"}}));
  EXPECT_EQ(room.bytes, 2'097'152u) << "limit 3 MiB, used 2 MiB, of which 1 MiB can be dropped";
  EXPECT_NE(room.limit.find("/sys/fs/cgroup/job/memory.max is 3 MiB"), std::string::npos) << room.limit;
}

TEST(MemoryRoom, ReadsVersionOneToo) {
  const MemoryRoom room =
      memory_room(files({{"/proc/meminfo", "MemAvailable:  4194304 kB\n"},
                         {"/proc/self/cgroup", "5:memory:/a\n"},
                         {"/proc/self/mountinfo", kMountsV1},
                         {"/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1048576\n"},
                         {"/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "4096\n"},
                         {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"}}));
  EXPECT_EQ(room.bytes, 1'044'480u);
}

TEST(MemoryRoom, WithoutGroupsItIsWhatTheHostHas) {
  const MemoryRoom room = memory_room(files({{"/proc/meminfo", "MemAvailable:  1024 kB\n"}}));
  EXPECT_EQ(room.bytes, 1'048'576u);
  EXPECT_EQ(memory_room(files({})).bytes, UINT64_MAX);
}

TEST(Segment, RefusesAMemoryLimitWithBothNumbersBeforeItTouchesAPage) {
  const ReadFile read_file = files({{"/proc/meminfo", "MemAvailable:  4194304 kB\n"},
                                    {"/proc/self/cgroup", "0::/\n"},
                                    {"/proc/self/mountinfo", kMountsV2},
                                    {"/sys/fs/cgroup/memory.max", "7340032\n"},
                                    {"/sys/fs/cgroup/memory.current", "1048576\n"}});
  const std::string text = sentence_of([&] { HostSegment::create(4, 1 << 20, 1, read_file); }, Code::kOutOfMemory);
  EXPECT_NE(text.find("4 ranks on this host need 8 MiB"), std::string::npos) << text;
  EXPECT_NE(text.find("only 6 MiB are left"), std::string::npos) << text;
  HostSegment::create(3, 1 << 20, 1, read_file);
}

TEST(Segment, TextsOfBytes) {
  EXPECT_EQ(bytes_text(17), "17 bytes");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(std::uint64_t{3} << 30), "3 GiB");
}

}  // namespace
}  // namespace aiacc
