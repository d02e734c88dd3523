// Measures the CPU cost of authenticating messages between hosts: each candidate of libsodium on records of several
// sizes, and the plain path for comparison (a TCP connection over the loopback interface, both ends). Rates are per
// second of CPU time, so other load on the machine changes them little. With the arguments `listen ADDRESS PORT
// plain|aes` on one host, and `send` with the same on another, it measures the path between them, without or with
// AES-GMAC at both ends.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sodium.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kTagBytes = 16;
constexpr std::size_t kMovedBytes = std::size_t{4} << 30;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::array<unsigned char, 32> key{7};
std::array<unsigned char, kTagBytes> tag{};

using Mac = std::function<void(const unsigned char*, std::size_t, std::uint64_t)>;

template <std::size_t kBytes>
std::array<unsigned char, kBytes> nonce_of(std::uint64_t counter) {
  std::array<unsigned char, kBytes> nonce{};
  for (std::size_t i = 0; i < sizeof counter; ++i) nonce[i] = static_cast<unsigned char>(counter >> (8 * i));
  return nonce;
}

// GB per second of one core.
double rate(const Mac& mac, std::size_t record) {
  std::vector<unsigned char> bytes(8 << 20, 0x5a);  // larger than the private caches of a core
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const double began = cpu_seconds();
    std::uint64_t counter = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      for (std::size_t at = 0; at < bytes.size(); at += record) mac(bytes.data() + at, record, ++counter);
    }
    best = std::max(best, 8.0 * static_cast<double>(bytes.size()) / (cpu_seconds() - began) / 1e9);
  }
  return best;
}

void require(bool holds, const char* what) {
  if (holds) return;
  std::perror(what);
  std::exit(1);
}

// The work of one end of the path on each record besides moving it; null: none.
using Work = void (*)(const unsigned char* data, std::size_t bytes, std::uint64_t counter);

constexpr std::size_t kRecordBytes = 64 << 10;

// The receiver's CPU time, and the elapsed time.
struct Taken {
  double bytes = 0;
  double cpu = 0;
  double wall = 0;
};

double wall_seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Taken receive_all(int end, Work work) {
  std::vector<unsigned char> into(kRecordBytes);
  Taken taken;
  const double began = cpu_seconds(), wall_began = wall_seconds();
  for (std::uint64_t counter = 0;; ++counter) {
    std::size_t have = 0;
    while (have < into.size()) {
      const ssize_t part = recv(end, into.data() + have, into.size() - have, 0);
      if (part <= 0) break;
      have += static_cast<std::size_t>(part);
    }
    taken.bytes += static_cast<double>(have);
    if (have < into.size()) break;
    if (work != nullptr) work(into.data(), have, counter);
  }
  taken.cpu = cpu_seconds() - began;
  taken.wall = wall_seconds() - wall_began;
  return taken;
}

Taken send_all(int end, Work work) {
  const std::vector<unsigned char> from(8 << 20, 0x5a);
  Taken taken;
  const double began = cpu_seconds(), wall_began = wall_seconds();
  for (std::uint64_t counter = 0; taken.bytes < static_cast<double>(kMovedBytes); ++counter) {
    const unsigned char* record = from.data() + counter * kRecordBytes % from.size();
    if (work != nullptr) work(record, kRecordBytes, counter);
    for (std::size_t sent = 0; sent < kRecordBytes;) {
      const ssize_t part = send(end, record + sent, kRecordBytes - sent, 0);
      require(part > 0, "a write");
      sent += static_cast<std::size_t>(part);
    }
    taken.bytes += static_cast<double>(kRecordBytes);
  }
  shutdown(end, SHUT_WR);
  taken.cpu = cpu_seconds() - began;
  taken.wall = wall_seconds() - wall_began;
  return taken;
}

int listen_at(sockaddr_in& address) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int yes = 1;
  socklen_t length = sizeof address;
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  require(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 && bind(listener, raw, length) == 0 &&
              listen(listener, 1) == 0 && getsockname(listener, raw, &length) == 0,
          "a listener");
  return listener;
}

int connect_to(const sockaddr_in& address) {
  const int end = socket(AF_INET, SOCK_STREAM, 0);
  require(connect(end, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "a connection");
  return end;
}

// GB per second of one core, for both ends together.
double plain_path() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int listener = listen_at(address);
  Taken received;
  std::thread receiver([&] {
    const int end = accept(listener, nullptr, nullptr);
    received = receive_all(end, nullptr);
    close(end);
  });
  const int end = connect_to(address);
  const Taken sent = send_all(end, nullptr);
  receiver.join();
  close(end);
  close(listener);
  return sent.bytes / (sent.cpu + received.cpu) / 1e9;
}

crypto_aead_aes256gcm_state aes;

void gmac(const unsigned char* data, std::size_t bytes, std::uint64_t counter) {
  unsigned char none = 0;
  crypto_aead_aes256gcm_encrypt_detached_afternm(&none, tag.data(), nullptr, nullptr, 0, data, bytes, nullptr,
                                                 nonce_of<crypto_aead_aes256gcm_NPUBBYTES>(counter).data(), &aes);
}

// One end of a path between two hosts: `listen ADDRESS PORT plain|aes`, then `send` with the same.
int one_end(const char* mode, const char* ip, const char* port, bool proves) {
  require(!proves || crypto_aead_aes256gcm_is_available() != 0, "AES");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
  require(inet_pton(AF_INET, ip, &address.sin_addr) == 1, "the address");
  const Work work = proves ? gmac : nullptr;
  const bool listens = std::string(mode) == "listen";
  const int end = listens ? accept(listen_at(address), nullptr, nullptr) : connect_to(address);
  const Taken taken = listens ? receive_all(end, work) : send_all(end, work);
  std::printf("%-6s %-5s %.3f GB/s, %.0f %% of a core\n", mode, proves ? "aes" : "plain",
              taken.bytes / taken.wall / 1e9, 100 * taken.cpu / taken.wall);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  require(sodium_init() >= 0, "libsodium");
  if (crypto_aead_aes256gcm_is_available() != 0) crypto_aead_aes256gcm_beforenm(&aes, key.data());
  if (argc == 5) return one_end(argv[1], argv[2], argv[3], std::string(argv[4]) == "aes");
  std::vector<std::pair<std::string, Mac>> macs = {
      {"BLAKE2b, keyed",
       [](const unsigned char* data, std::size_t bytes, std::uint64_t) {
         crypto_generichash(tag.data(), tag.size(), data, bytes, key.data(), key.size());
       }},
      {"Poly1305, a key for each record",
       [](const unsigned char* data, std::size_t bytes, std::uint64_t counter) {
         std::array<unsigned char, crypto_onetimeauth_KEYBYTES> once;
         crypto_stream_chacha20(once.data(), once.size(), nonce_of<crypto_stream_chacha20_NONCEBYTES>(counter).data(),
                                key.data());
         crypto_onetimeauth(tag.data(), data, bytes, once.data());
       }},
      {"ChaCha20-Poly1305, nothing hidden", [](const unsigned char* data, std::size_t bytes, std::uint64_t counter) {
         unsigned char none = 0;
         crypto_aead_chacha20poly1305_ietf_encrypt_detached(
             &none, tag.data(), nullptr, nullptr, 0, data, bytes, nullptr,
             nonce_of<crypto_aead_chacha20poly1305_ietf_NPUBBYTES>(counter).data(), key.data());
       }}};
  if (crypto_aead_aes256gcm_is_available() != 0) macs.emplace_back("AES-GMAC", gmac);
  static std::vector<unsigned char> hidden((1 << 20) + 17);
  static crypto_secretstream_xchacha20poly1305_state stream;
  std::array<unsigned char, crypto_secretstream_xchacha20poly1305_HEADERBYTES> header;
  crypto_secretstream_xchacha20poly1305_init_push(&stream, header.data(), key.data());
  macs.emplace_back("XChaCha20-Poly1305, all hidden", [](const unsigned char* data, std::size_t bytes, std::uint64_t) {
    crypto_secretstream_xchacha20poly1305_push(&stream, hidden.data(), nullptr, data, bytes, nullptr, 0, 0);
  });

  std::printf("%-36s %10s %10s %10s\n", "GB/s of a core, records of", "16 KiB", "64 KiB", "256 KiB");
  for (const auto& [name, mac] : macs) {
    std::printf("%-36s %10.2f %10.2f %10.2f\n", name.c_str(), rate(mac, 16 << 10), rate(mac, 64 << 10),
                rate(mac, 256 << 10));
  }
  std::printf("%-36s %10.2f\n", "plain TCP over loopback, both ends", plain_path());
  return 0;
}
