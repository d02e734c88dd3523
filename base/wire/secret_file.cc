#include "base/wire/secret_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bitset>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/fd.h"

namespace aiacc::wire {

namespace {

// 32 random bytes have about 30 different values; fewer than 8 practically never occur by chance.
constexpr int kLeastDifferentBytes = 8;

int different_bytes(const Secret& secret) {
  std::bitset<256> seen;
  for (const std::byte byte : secret.bytes()) seen.set(std::to_integer<std::size_t>(byte));
  const int count = static_cast<int>(seen.count());
  sodium_memzero(&seen, sizeof seen);
  return count;
}

}  // namespace

Secret read_secret_file(std::string_view what, const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    return Error(Code::kInvalidArgument, fmt::format("{}={}: {}", what, path, why));
  };
  // O_NONBLOCK: opening a pipe must return at once; it is then refused.
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  struct stat about {};
  if (!file || ::fstat(file.get(), &about) != 0) {
    throw refuse(fmt::format("the file cannot be read ({}); make one with {} and bring it to every host",
                             std::strerror(errno), kMakeSecretFile));
  }
  if (!S_ISREG(about.st_mode)) throw refuse(fmt::format("this is no plain file; make one with {}", kMakeSecretFile));
  const unsigned mode = about.st_mode & 07777;
  if ((mode & 077) != 0) {
    throw refuse(fmt::format("others may read or write the file, its mode is {:04o}: chmod 600 {}", mode, path));
  }
  if (about.st_uid != ::geteuid() && about.st_uid != 0) {
    throw refuse(
        fmt::format("the file belongs to user {}, and this process to user {}: who runs the job owns its secret",
                    about.st_uid, ::geteuid()));
  }
  std::array<char, Secret::kBytes + 1> bytes{};
  std::size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t part = ::read(file.get(), bytes.data() + got, bytes.size() - got);
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) throw refuse(fmt::format("the file cannot be read ({})", std::strerror(errno)));
    if (part == 0) break;
    got += static_cast<std::size_t>(part);
  }
  const Secret secret = got == Secret::kBytes ? Secret::from(std::string_view(bytes.data(), Secret::kBytes)) : Secret();
  sodium_memzero(bytes.data(), bytes.size());
  if (got != Secret::kBytes) {
    throw refuse(fmt::format("the file has {} bytes and a secret {}; make one with {}", about.st_size, Secret::kBytes,
                             kMakeSecretFile));
  }
  if (const int different = different_bytes(secret); different < kLeastDifferentBytes) {
    throw refuse(fmt::format("its 32 bytes have {} different values, which can be guessed; make a secret with {}",
                             different, kMakeSecretFile));
  }
  return secret;
}

}  // namespace aiacc::wire
