#include "base/wire/secure_channel.h"

#include <fmt/format.h>
#include <sodium.h>

#include "base/wire/raw.h"

namespace aiacc::wire {
namespace {

static_assert(sizeof(SealHeader) == crypto_secretstream_xchacha20poly1305_HEADERBYTES);
constexpr std::size_t kSealBytes = crypto_secretstream_xchacha20poly1305_ABYTES;
// The bytes around a message: the header of the Sealed frame, the count of its bytes, the seal.
constexpr std::uint32_t kAround = kFrameHeaderBytes + sizeof(std::uint32_t) + kSealBytes;

unsigned char* raw(std::string& bytes) noexcept { return reinterpret_cast<unsigned char*>(bytes.data()); }
const unsigned char* raw(const std::string& bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

struct SecureChannel::Ciphers {
  ~Ciphers() {
    sodium_memzero(&outgoing, sizeof outgoing);
    sodium_memzero(&incoming, sizeof incoming);
  }
  Secret incoming_key;
  SealHeader header{};  // for the outgoing stream
  crypto_secretstream_xchacha20poly1305_state outgoing{};
  crypto_secretstream_xchacha20poly1305_state incoming{};
};

SecureChannel::SecureChannel(Loop& loop, std::unique_ptr<io::Stream> stream, const Secret& outgoing,
                             const Secret& incoming, std::uint32_t limit)
    : channel_(loop, std::move(stream), limit + kAround), ciphers_(std::make_unique<Ciphers>()) {
  ciphers_->incoming_key = incoming;
  crypto_secretstream_xchacha20poly1305_init_push(
      &ciphers_->outgoing, reinterpret_cast<unsigned char*>(ciphers_->header.data()), raw(outgoing.bytes()));
}

SecureChannel::~SecureChannel() = default;

// The frame is sealed and queued without a suspension in between. A frame that was sealed but not queued because of a
// stop would break the sequence at the other end.
Task<void> SecureChannel::send_sealed(Bytes frame, bool last, Stop& stop) {
  if (frame.size() > kLargestFrameBytes - kAround) {
    throw Error(Code::kInvalidArgument,
                fmt::format("a message of {} bytes is too long to be sent encrypted; {} is the most", frame.size(),
                            kLargestFrameBytes - kAround));
  }
  stop.throw_if_requested();
  if (!begun_) {
    begun_ = true;
    SealBegins begins;
    begins.header = ciphers_->header;
    co_await channel_.send(begins, stop);
  }
  stop.throw_if_requested();
  const Sealed sealed = seal(frame, last);
  co_await channel_.send(sealed, stop);
}

// Seals the type and the fields of a frame, without its length.
Sealed SecureChannel::seal(const Bytes& frame, bool last) {
  const std::span<const std::byte> plain =
      last ? std::span<const std::byte>() : std::span(frame).subspan(sizeof(std::uint32_t));
  const unsigned char tag = last ? crypto_secretstream_xchacha20poly1305_TAG_FINAL : 0;
  Sealed sealed;
  sealed.bytes.resize(plain.size() + kSealBytes);
  crypto_secretstream_xchacha20poly1305_push(&ciphers_->outgoing, raw(sealed.bytes), nullptr, raw(plain), plain.size(),
                                             nullptr, 0, tag);
  return sealed;
}

Task<std::optional<Frame>> SecureChannel::receive(Stop& stop) {
  if (over_) co_return std::nullopt;
  for (;;) {
    const std::optional<Frame> frame = co_await channel_.receive(stop);
    if (!frame) {
      throw Error(Code::kPeerFailed,
                  fmt::format("{} closed the connection without a farewell", channel_.stream().describe()));
    }
    if (!expects_begin_) co_return open(frame->as<Sealed>());
    expects_begin_ = false;
    const auto begins = frame->as<SealBegins>();
    if (crypto_secretstream_xchacha20poly1305_init_pull(&ciphers_->incoming, raw(begins.header),
                                                        raw(ciphers_->incoming_key.bytes())) != 0) {
      refuse();
    }
  }
}

std::optional<Frame> SecureChannel::open(const Sealed& sealed) {
  if (sealed.bytes.size() < kSealBytes) refuse();
  Bytes plain(sealed.bytes.size() - kSealBytes);
  unsigned char tag = 0;
  if (crypto_secretstream_xchacha20poly1305_pull(&ciphers_->incoming, reinterpret_cast<unsigned char*>(plain.data()),
                                                 nullptr, &tag, raw(sealed.bytes), sealed.bytes.size(), nullptr,
                                                 0) != 0) {
    refuse();
  }
  if (tag == crypto_secretstream_xchacha20poly1305_TAG_FINAL && plain.empty()) {
    over_ = true;
    return std::nullopt;
  }
  Frame frame;
  if (plain.size() < sizeof frame.type) refuse();
  Reader(std::span(plain).first(sizeof frame.type), "a sealed message").get(frame.type);
  frame.body.assign(plain.begin() + sizeof frame.type, plain.end());
  return frame;
}

void SecureChannel::refuse() {
  throw Error(Code::kProtocol,
              fmt::format("data from {} is not authentic: the other end did not send it at this position",
                          channel_.stream().describe()));
}

}  // namespace aiacc::wire
