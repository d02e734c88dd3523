// Fuzzes both ends of the handshake with each of its frames from an unauthenticated peer. The first byte of the input
// chooses the frame and the version. Any input is refused, or is exactly the frame that the genuine other end would
// have sent.
//
// Built on request: `make handshake_fuzz`; see agent_messages_fuzz.cc.
#include <cstdlib>

#include "base/wire/handshake.h"
#include "tests/fuzz/driver.h"

namespace aiacc::wire {
namespace {

class CountingEntropy final : public io::Entropy {
 public:
  explicit CountingEntropy(int first) noexcept : next_(first) {}
  void fill(std::span<std::byte> bytes) override {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(next_++);
  }

 private:
  int next_;
};

Secret the_secret() {
  CountingEntropy entropy(0);
  return Secret::fresh(entropy);
}

constexpr Versions kNew{1, 2}, kOld{1, 1};

// Two ends with fixed nonces, and the frames that they exchange.
struct Ends {
  explicit Ends(Versions versions) : dialer(the_secret(), {Purpose::kData, 7, 3, 1}, dialer_entropy, versions) {}
  CountingEntropy dialer_entropy{1}, listener_entropy{2};
  DialerHandshake dialer;
  ListenerHandshake listener{the_secret(), {Purpose::kData, 7, 1, 4}, listener_entropy};
};

struct TrueFrames {
  explicit TrueFrames(Versions versions) {
    Ends ends(versions);
    hello = ends.dialer.hello();
    challenge = ends.listener.answer(hello).frame;
    proof = ends.dialer.prove(challenge, "terms");
    ends.listener.check(proof);
    verdict = ends.listener.decide(Verdict::kAccepted, "terms");
  }
  Bytes hello, challenge, proof, verdict;
};

void expect_same(std::span<const std::byte> came, const Bytes& meant) {
  if (!std::equal(came.begin(), came.end(), meant.begin(), meant.end())) std::abort();
}

void feed(std::byte step, std::span<const std::byte> frame) {
  static const TrueFrames truths[] = {TrueFrames(kNew), TrueFrames(kOld)};
  const bool old = (step & std::byte{4}) != std::byte{0};
  const TrueFrames& truth = truths[old ? 1 : 0];
  Ends ends(old ? kOld : kNew);
  switch (std::to_integer<int>(step) % 4) {
    case 0: ends.listener.answer(frame); break;
    case 1:
      ends.dialer.prove(frame, "terms");
      if (ends.dialer.listener_authenticated()) expect_same(frame, truth.challenge);
      break;
    case 2:
      ends.listener.answer(truth.hello);
      ends.listener.check(frame);
      expect_same(frame, truth.proof);
      break;
    default:
      ends.dialer.prove(truth.challenge, "terms");
      ends.dialer.conclude(frame);
      expect_same(frame, truth.verdict);
  }
}

Bytes seed(int step, const Bytes& frame) {
  Bytes input{static_cast<std::byte>(step)};
  input.insert(input.end(), frame.begin(), frame.end());
  return input;
}

}  // namespace
}  // namespace aiacc::wire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using aiacc::Code;
  if (bytes == 0) return 0;
  const auto input = std::as_bytes(std::span(data, bytes));
  try {
    aiacc::wire::feed(input[0], input.subspan(1));
  } catch (const aiacc::Error& error) {
    if (error.code() != Code::kProtocol && error.code() != Code::kPeerFailed) std::abort();
  }
  return 0;
}

std::vector<aiacc::wire::Bytes> fuzz_seeds() {
  using namespace aiacc::wire;
  const TrueFrames truth({1, 2}), old({1, 1});
  ConnectRefused refused;
  refused.sentence = "this is not the rank";
  return {seed(0, truth.hello),   seed(1, truth.challenge), seed(2, truth.proof),
          seed(3, truth.verdict), seed(4, old.hello),       seed(5, old.challenge),
          seed(6, old.proof),     seed(7, old.verdict),     seed(1, encode_frame(refused))};
}
