// CallNote: a copy of a call and a function that prints it, for the rare message that describes the call later. The
// call's own type belongs to a higher floor, and formatting a string for every call would cost too much.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>

namespace aiacc {

class CallNote {
 public:
  CallNote() = default;

  template <class Call>
  requires requires(const Call& call) {
    { call.describe() } -> std::convertible_to<std::string>;
  }
  explicit CallNote(const Call& call) noexcept
      : describe_([](const std::byte* bytes) {
          Call copy;
          std::memcpy(static_cast<void*>(&copy), bytes, sizeof copy);
          return std::string(copy.describe());
        }) {
    static_assert(std::is_trivially_copyable_v<Call> && sizeof(Call) <= kBytes);
    std::memcpy(call_.data(), &call, sizeof call);
  }

  std::string describe() const { return describe_ == nullptr ? "an unknown call" : describe_(call_.data()); }

 private:
  static constexpr std::size_t kBytes = 96;
  std::array<std::byte, kBytes> call_{};
  std::string (*describe_)(const std::byte*) = nullptr;
};

}  // namespace aiacc
