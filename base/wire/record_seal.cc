#include "base/wire/record_seal.h"

#include <sodium.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/wire/hidden.h"
#include "base/wire/raw.h"

namespace aiacc::wire {
namespace {

constexpr std::size_t kLengthBytes = sizeof(std::uint32_t);
constexpr std::size_t kLengthProofBytes = crypto_shorthash_siphash24_BYTES;
constexpr std::size_t kPlainHead = kLengthBytes + kLengthProofBytes;
constexpr std::size_t kTagBytes = 16;
constexpr std::string_view kLengthsLabel = "aiacc lengths";

// Encrypted records are short, because the reader gets nothing of a record before its last byte. bench/wire measured
// both sizes.
constexpr RecordSeal::Sizes kEncryptedSizes{crypto_secretstream_xchacha20poly1305_HEADERBYTES, kPlainHead, 16 << 10,
                                            crypto_secretstream_xchacha20poly1305_ABYTES};
constexpr RecordSeal::Sizes kProvedSizes{0, kPlainHead + kTagBytes, 64 << 10, 0};
static_assert(kProvedSizes.head == RecordSeal::kMaxHeadBytes && kEncryptedSizes.head < RecordSeal::kMaxHeadBytes);
static_assert(kEncryptedSizes.preface == RecordSeal::kMaxPrefaceBytes);

template <class T>
void put_little_endian(T value, unsigned char* into) noexcept {
  for (std::size_t i = 0; i < sizeof value; ++i) into[i] = static_cast<unsigned char>(value >> (8 * i));
}

bool has_aes() noexcept {
  static const bool has = sodium_init() >= 0 && crypto_aead_aes256gcm_is_available() != 0;
  return has;
}

class Encrypted final : public RecordSeal {
 public:
  explicit Encrypted(const Secret& key) : RecordSeal(kEncryptedSizes, key), key_(key) {}
  ~Encrypted() override { sodium_memzero(&state_, sizeof state_); }

  void begin(std::span<std::byte> preface) noexcept override {
    crypto_secretstream_xchacha20poly1305_init_push(&state_, raw(preface), raw(key_.bytes()));
    key_ = Secret();
  }
  bool resume(std::span<const std::byte> preface) noexcept override {
    const int begun = crypto_secretstream_xchacha20poly1305_init_pull(&state_, raw(preface), raw(key_.bytes()));
    key_ = Secret();
    return begun == 0;
  }

 private:
  std::span<const std::byte> protect(std::span<const std::byte> plain, bool last, Proof,
                                     std::span<std::byte> hidden) noexcept override {
    crypto_secretstream_xchacha20poly1305_push(&state_, raw(hidden), nullptr, raw(plain), plain.size(), nullptr, 0,
                                               last ? crypto_secretstream_xchacha20poly1305_TAG_FINAL : 0);
    return hidden.first(plain.size() + kEncryptedSizes.around);
  }
  std::optional<std::span<const std::byte>> recover(std::span<const std::byte>, std::span<const std::byte> body,
                                                    std::span<std::byte> plain, bool* last) noexcept override {
    unsigned char tag = 0;
    if (crypto_secretstream_xchacha20poly1305_pull(&state_, raw(plain), nullptr, &tag, raw(body), body.size(), nullptr,
                                                   0) != 0) {
      return std::nullopt;
    }
    *last = tag == crypto_secretstream_xchacha20poly1305_TAG_FINAL;
    return plain.first(body.size() - kEncryptedSizes.around);
  }

  Secret key_;
  crypto_secretstream_xchacha20poly1305_state state_{};
};

// Authentication by the tag of an AEAD cipher that encrypts nothing and has the body as additional data. Its nonce is
// the number of the record, so no two records of a key have the same nonce.
class Proved : public RecordSeal {
 public:
  explicit Proved(const Secret& key) : RecordSeal(kProvedSizes, key) {}
  void begin(std::span<std::byte>) noexcept final {}
  bool resume(std::span<const std::byte>) noexcept final { return true; }

 protected:
  static constexpr std::size_t kNonceBytes = 12;
  static_assert(crypto_aead_aes256gcm_NPUBBYTES == kNonceBytes &&
                crypto_aead_chacha20poly1305_ietf_NPUBBYTES == kNonceBytes);
  virtual void tag_of(std::span<const std::byte> body, const unsigned char* nonce,
                      unsigned char* tag) const noexcept = 0;

 private:
  std::array<unsigned char, kTagBytes> tag_now(std::span<const std::byte> body) const noexcept {
    std::array<unsigned char, kNonceBytes> nonce{};
    put_little_endian(count(), nonce.data());
    std::array<unsigned char, kTagBytes> tag;
    tag_of(body, nonce.data(), tag.data());
    return tag;
  }
  std::span<const std::byte> protect(std::span<const std::byte> plain, bool, Proof proof,
                                     std::span<std::byte>) noexcept final {
    const std::array<unsigned char, kTagBytes> tag = tag_now(plain);
    std::copy(tag.begin(), tag.end(), raw(proof));
    return plain;
  }
  std::optional<std::span<const std::byte>> recover(std::span<const std::byte> proof, std::span<const std::byte> body,
                                                    std::span<std::byte>, bool* last) noexcept final {
    if (sodium_memcmp(tag_now(body).data(), proof.data(), kTagBytes) != 0) return std::nullopt;
    *last = body.empty();
    return body;
  }
};

class ProvedByAes final : public Proved {
 public:
  explicit ProvedByAes(const Secret& key) : Proved(key) {
    crypto_aead_aes256gcm_beforenm(&state_->aes, raw(key.bytes()));
  }
  ~ProvedByAes() override { sodium_memzero(state_.get(), sizeof *state_); }

 private:
  void tag_of(std::span<const std::byte> body, const unsigned char* nonce, unsigned char* tag) const noexcept override {
    unsigned char none = 0;
    crypto_aead_aes256gcm_encrypt_detached_afternm(&none, tag, nullptr, nullptr, 0, raw(body), body.size(), nullptr,
                                                   nonce, &state_->aes);
  }
  struct State {
    crypto_aead_aes256gcm_state aes;
  };
  std::unique_ptr<State> state_ = std::make_unique<State>();  // on the heap because of its alignment
};

class ProvedByPoly final : public Proved {
 public:
  explicit ProvedByPoly(const Secret& key) : Proved(key), key_(key) {}

 private:
  void tag_of(std::span<const std::byte> body, const unsigned char* nonce, unsigned char* tag) const noexcept override {
    unsigned char none = 0;
    crypto_aead_chacha20poly1305_ietf_encrypt_detached(&none, tag, nullptr, nullptr, 0, raw(body), body.size(), nullptr,
                                                       nonce, raw(key_.bytes()));
  }
  Secret key_;
};

bool authenticates(Protection how) noexcept { return how == Protection::kAes || how == Protection::kPoly; }

}  // namespace

Protection fastest_authentication() noexcept { return has_aes() ? Protection::kAes : Protection::kPoly; }

std::optional<Protection> common(Protection one, Protection other) noexcept {
  if (one == other) return one;
  if (authenticates(one) && authenticates(other)) return Protection::kPoly;
  return std::nullopt;
}

// --- common to all kinds ---------------------------------------------------------------------------------------------

struct RecordSeal::Keys {
  ~Keys() { sodium_memzero(lengths.data(), lengths.size()); }
  std::array<unsigned char, crypto_shorthash_siphash24_KEYBYTES> lengths;
};

RecordSeal::RecordSeal(const Sizes& sizes, const Secret& key) : sizes_(sizes), keys_(std::make_unique<Keys>()) {
  std::array<unsigned char, 16> label{};
  std::copy(kLengthsLabel.begin(), kLengthsLabel.end(), label.begin());
  crypto_generichash(keys_->lengths.data(), keys_->lengths.size(), label.data(), label.size(), raw(key.bytes()),
                     Secret::kBytes);
}

RecordSeal::~RecordSeal() = default;

std::unique_ptr<RecordSeal> RecordSeal::make(Protection how, const Secret& key) {
  switch (how) {
    case Protection::kEncrypted: return std::make_unique<Encrypted>(key);
    case Protection::kAes:
      AIACC_INVARIANT(has_aes(), "both ends have said that their processors have AES");
      return std::make_unique<ProvedByAes>(key);
    case Protection::kPoly: return std::make_unique<ProvedByPoly>(key);
    case Protection::kNone: break;
  }
  throw Error(Code::kInternal, "there is no seal that protects nothing");
}

void RecordSeal::prove_length(std::uint32_t length, std::span<std::byte> proof) const noexcept {
  std::array<unsigned char, sizeof count_ + kLengthBytes> said;
  put_little_endian(count_, said.data());
  put_little_endian(length, said.data() + sizeof count_);
  crypto_shorthash_siphash24(raw(proof), said.data(), said.size(), keys_->lengths.data());
}

std::span<const std::byte> RecordSeal::seal(std::span<const std::byte> plain, bool last, std::span<std::byte> head,
                                            std::span<std::byte> hidden) noexcept {
  const auto length = static_cast<std::uint32_t>(plain.size() + sizes_.around);
  put_little_endian(length, raw(head));
  prove_length(length, head.subspan(kLengthBytes, kLengthProofBytes));
  const std::span<const std::byte> body = protect(plain, last, head.subspan(kPlainHead), hidden);
  ++count_;
  return body;
}

std::optional<std::uint32_t> RecordSeal::length(std::span<const std::byte> head) const noexcept {
  std::uint32_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) length |= std::to_integer<std::uint32_t>(head[i]) << (8 * i);
  std::array<std::byte, kLengthProofBytes> proof;
  prove_length(length, proof);
  const bool proved = sodium_memcmp(proof.data(), head.data() + kLengthBytes, proof.size()) == 0;
  if (!proved || length < sizes_.around || length > sizes_.plain + sizes_.around) return std::nullopt;
  return length;
}

std::optional<std::span<const std::byte>> RecordSeal::open(std::span<const std::byte> head,
                                                           std::span<const std::byte> body, std::span<std::byte> plain,
                                                           bool* last) noexcept {
  const auto opened = recover(head.subspan(kPlainHead), body, plain, last);
  ++count_;
  return opened;
}

}  // namespace aiacc::wire
