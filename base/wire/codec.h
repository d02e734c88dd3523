// The encoding of messages. A message is a struct with a type number and its fields in order; encoder, decoder and all
// checks are derived from that list:
//
//   struct Refused { static constexpr std::uint16_t kType = 3; std::int32_t code; std::string sentence;
//                    auto fields() { return std::tie(code, sentence); } };
//
// Integers are little-endian; a bool is a byte, 0 or 1; strings and vectors are a 32-bit count and their elements; an
// array of bytes is these bytes; a struct with fields() is its fields. The decoder gets bytes from unauthenticated
// peers: it never reads past the end, never allocates more than the present bytes could fill, and requires that every
// byte is used. Invalid bytes throw kProtocol with a sentence.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/wire/hidden.h"

namespace aiacc::wire {

using Bytes = std::vector<std::byte, Wiping<std::byte>>;  // wiped, because secrets pass through them

template <class T>
concept Structure = requires(T value) {
  value.fields();
};
template <class T>
concept Message = Structure<T> && requires {
  { T::kType } -> std::convertible_to<std::uint16_t>;
};
template <class T>
concept Scalar = std::integral<T> || std::is_enum_v<T>;

namespace codec_detail {

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

template <class T>
struct IsString : std::false_type {};
template <class A>
struct IsString<std::basic_string<char, std::char_traits<char>, A>> : std::true_type {};

template <class T>
struct IsByteArray : std::false_type {};
template <std::size_t N>
struct IsByteArray<std::array<std::byte, N>> : std::true_type {};

// The fewest bytes that a value of this type takes: limits the counts that are accepted.
template <class T>
constexpr std::size_t min_bytes() {
  if constexpr (Scalar<T>) {
    return sizeof(T);
  } else if constexpr (IsByteArray<T>::value) {
    return std::tuple_size_v<T>;
  } else if constexpr (IsString<T>::value || IsVector<T>::value) {
    return sizeof(std::uint32_t);
  } else {
    using Fields = decltype(std::declval<T&>().fields());
    return []<class... Field>(std::type_identity<std::tuple<Field...>>) {
      return (min_bytes<std::remove_cvref_t<Field>>() + ... + std::size_t{0});
    }(std::type_identity<Fields>{});
  }
}

}  // namespace codec_detail

// Appends values to bytes.
class Writer {
 public:
  explicit Writer(Bytes& out) noexcept : out_(out) {}

  template <Scalar T>
  void put(T value) {
    std::array<std::byte, sizeof(T)> raw;
    std::memcpy(raw.data(), &value, sizeof value);
    if constexpr (std::endian::native == std::endian::big) std::reverse(raw.begin(), raw.end());
    append(raw);
  }
  template <class A>
  void put(const std::basic_string<char, std::char_traits<char>, A>& text) {
    put_count(text.size());
    append(std::as_bytes(std::span(text)));
  }
  template <std::size_t N>
  void put(const std::array<std::byte, N>& bytes) {
    append(bytes);
  }
  template <class T>
  void put(const std::vector<T>& elements) {
    put_count(elements.size());
    for (const T& element : elements) put(element);
  }
  template <Structure T>
  void put(const T& value) {
    // fields() is not const because the decoder uses it too; here the fields are only read.
    std::apply([this](const auto&... field) { (put(field), ...); }, const_cast<T&>(value).fields());
  }

 private:
  void append(std::span<const std::byte> bytes);
  void put_count(std::size_t count);
  Bytes& out_;
};

// Reads values from untrusted bytes.
class Reader {
 public:
  // `what` names the message in error texts, and must outlive the reader.
  Reader(std::span<const std::byte> bytes, std::string_view what) noexcept : left_(bytes), what_(what) {}

  template <Scalar T>
  void get(T& value) {
    const std::span<const std::byte> raw = take(sizeof(T));
    if constexpr (std::same_as<T, bool>) {
      if (raw[0] > std::byte{1}) refuse_bool(raw[0]);
      value = raw[0] == std::byte{1};
    } else {
      std::array<std::byte, sizeof(T)> ordered;
      std::copy(raw.begin(), raw.end(), ordered.begin());
      if constexpr (std::endian::native == std::endian::big) std::reverse(ordered.begin(), ordered.end());
      std::memcpy(&value, ordered.data(), sizeof value);
    }
  }
  template <class A>
  void get(std::basic_string<char, std::char_traits<char>, A>& text) {
    const std::span<const std::byte> raw = take(get_count(1));
    text.assign(reinterpret_cast<const char*>(raw.data()), raw.size());
  }
  template <std::size_t N>
  void get(std::array<std::byte, N>& bytes) {
    const std::span<const std::byte> raw = take(N);
    std::copy(raw.begin(), raw.end(), bytes.begin());
  }
  template <class T>
  void get(std::vector<T>& elements) {
    static_assert(codec_detail::min_bytes<T>() > 0, "a count of elements without bytes would have no bound");
    elements.clear();
    elements.resize(get_count(codec_detail::min_bytes<T>()));
    for (T& element : elements) get(element);
  }
  template <Structure T>
  void get(T& value) {
    std::apply([this](auto&... field) { (get(field), ...); }, value.fields());
  }

  void expect_end() const;

 private:
  std::span<const std::byte> take(std::size_t bytes);
  // Reads a count of elements of at least `element_bytes` each; throws unless the remaining bytes can hold them.
  std::size_t get_count(std::size_t element_bytes);
  [[noreturn]] void refuse_bool(std::byte value) const;

  std::span<const std::byte> left_;
  std::string_view what_;
};

// The fields of `message`, without a frame around them.
template <Structure T>
Bytes encode(const T& message) {
  Bytes bytes;
  Writer(bytes).put(message);
  return bytes;
}

// Decodes `bytes` as one T; throws unless all of them are used.
template <Structure T>
T decode(std::span<const std::byte> bytes, std::string_view what) {
  T message;
  Reader reader(bytes, what);
  reader.get(message);
  reader.expect_end();
  return message;
}

}  // namespace aiacc::wire
