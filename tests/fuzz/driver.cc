// A fuzz driver for compilers without libFuzzer: mutates and joins valid inputs, without coverage, for a given time.
//
//   PROGRAM [SECONDS [SEED]]     PROGRAM FILE…  (runs these inputs)
//
// The present input is in the file fuzz.input of the current folder, also after a crash.
#include "tests/fuzz/driver.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

namespace {

using aiacc::wire::Bytes;

class Mutator {
 public:
  Mutator(std::uint64_t seed, std::vector<Bytes> seeds) : random_(seed), seeds_(std::move(seeds)) {}

  Bytes next() {
    Bytes input = pick(seeds_);
    for (std::size_t joined = below(3); joined > 0; --joined) {
      const Bytes& other = pick(seeds_);
      input.insert(input.end(), other.begin(), other.end());
    }
    for (std::size_t changes = below(8); changes > 0 && !input.empty(); --changes) change(input);
    return input;
  }

 private:
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_() % bound); }
  const Bytes& pick(const std::vector<Bytes>& from) { return from[below(from.size())]; }
  std::byte any() { return static_cast<std::byte>(random_()); }

  void change(Bytes& input) {
    const std::size_t at = below(input.size());
    const auto place = input.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(6)) {
      case 0: *place = any(); break;
      case 1: *place ^= std::byte{1} << static_cast<int>(below(8)); break;
      case 2: input.insert(place, below(9), any()); break;
      case 3: input.erase(place, place + static_cast<std::ptrdiff_t>(std::min(below(9), input.size() - at))); break;
      case 4: input.resize(at); break;
      default: {  // a count or a length
        const std::uint32_t values[] = {0,       1, 2, 0x7fffffff, 0xffffffff, static_cast<std::uint32_t>(input.size()),
                                        1u << 20};
        std::memcpy(&*place, &values[below(7)], std::min<std::size_t>(4, input.size() - at));
      }
    }
  }

  std::mt19937_64 random_;
  std::vector<Bytes> seeds_;
};

void run(const Bytes& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

int run_file(const char* name) {
  std::ifstream file(name, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  Bytes input(text.size());
  std::memcpy(input.data(), text.data(), text.size());
  run(input);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strspn(argv[1], "0123456789") != std::strlen(argv[1])) {
    for (int i = 1; i < argc; ++i) run_file(argv[i]);
    return 0;
  }
  const double seconds = argc > 1 ? std::atof(argv[1]) : 10;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::random_device{}();
  Mutator mutator(seed, fuzz_seeds());
  std::FILE* record = std::fopen("fuzz.input", "wb");
  if (record == nullptr) return 1;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  std::uint64_t inputs = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < 100; ++i, ++inputs) {
      const Bytes input = mutator.next();
      record = std::freopen("fuzz.input", "wb", record);
      std::fwrite(input.data(), 1, input.size(), record);
      std::fflush(record);
      run(input);
    }
  }
  std::fclose(record);
  std::remove("fuzz.input");
  std::printf("%llu inputs, none of them broke anything\n", static_cast<unsigned long long>(inputs));
  return 0;
}
