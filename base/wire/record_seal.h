// RecordSeal: protects one direction of a connection after its handshake (base/wire/sealed_stream.h). Bytes are sent in
// records: a head, which contains the length of the body, and the body.
//
// The head authenticates the length by itself, with 8 bytes of SipHash-2-4: an altered length is detected when it
// arrives, not only after all bytes that it announces, which may never arrive. docs/wire-protocol.md has the layout and
// test vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/wire/secret.h"

namespace aiacc::wire {

// The values that the two ends exchange in the handshake.
enum class Protection : std::uint8_t {
  kNone = 0,
  kEncrypted = 1,  // libsodium's secretstream, XChaCha20-Poly1305
  // Authentication without encryption. Both ends use kPoly unless both processors have instructions for AES.
  kAes = 2,   // AES-256-GMAC
  kPoly = 3,  // ChaCha20-Poly1305
};

// The fastest authentication on this machine: kAes or kPoly.
Protection fastest_authentication() noexcept;
// The protection that two ends use if both encrypt, both authenticate or both do neither; nullopt for any other pair.
std::optional<Protection> common(Protection one, Protection other) noexcept;

class RecordSeal {
 public:
  static constexpr std::size_t kMaxHeadBytes = 28;
  static constexpr std::size_t kMaxPrefaceBytes = 24;

  // For one direction, with its session key. Not for kNone.
  static std::unique_ptr<RecordSeal> make(Protection how, const Secret& key);
  virtual ~RecordSeal();

  // Constants of each kind.
  struct Sizes {
    std::size_t preface;  // bytes before the first record
    std::size_t head;
    std::size_t plain;   // the most plain bytes of a record
    std::size_t around;  // the other bytes of a body
  };
  const Sizes& sizes() const noexcept { return sizes_; }

  // Called first at the sending end: fills the preface.
  virtual void begin(std::span<std::byte> preface) noexcept = 0;
  // Seals the next record. Fills `head`; returns the body, which is `plain` itself without encryption, and otherwise is
  // in `hidden`: plain.size() + sizes().around bytes.
  std::span<const std::byte> seal(std::span<const std::byte> plain, bool last, std::span<std::byte> head,
                                  std::span<std::byte> hidden) noexcept;

  // Called first at the receiving end. False for an invalid preface.
  virtual bool resume(std::span<const std::byte> preface) noexcept = 0;
  // The length of the next record's body; nullopt if the head is not authentic at this position.
  std::optional<std::uint32_t> length(std::span<const std::byte> head) const noexcept;
  // The plain bytes, in `body` or in `plain`; nullopt if the record is not authentic at this position. Counts the
  // record.
  std::optional<std::span<const std::byte>> open(std::span<const std::byte> head, std::span<const std::byte> body,
                                                 std::span<std::byte> plain, bool* last) noexcept;

 protected:
  RecordSeal(const Sizes& sizes, const Secret& key);
  using Proof = std::span<std::byte>;  // the rest of the head
  virtual std::span<const std::byte> protect(std::span<const std::byte> plain, bool last, Proof proof,
                                             std::span<std::byte> hidden) noexcept = 0;
  virtual std::optional<std::span<const std::byte>> recover(std::span<const std::byte> proof,
                                                            std::span<const std::byte> body, std::span<std::byte> plain,
                                                            bool* last) noexcept = 0;
  std::uint64_t count() const noexcept { return count_; }  // the number of earlier records

 private:
  struct Keys;
  void prove_length(std::uint32_t length, std::span<std::byte> proof) const noexcept;

  const Sizes sizes_;
  std::uint64_t count_ = 0;
  std::unique_ptr<Keys> keys_;
};

}  // namespace aiacc::wire
