// The images of handwritten digits, and how ranks share them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace digits {

inline constexpr std::size_t kPixels = 64;
inline constexpr std::size_t kClasses = 10;

struct Image {
  double pixels[kPixels];  // 0 to 1
  std::size_t digit;
};

// Throws std::runtime_error with the line that is no image.
std::vector<Image> read_images(const std::string& path);

// The range [begin, end) of `count` items that belongs to `rank`: contiguous shares whose sizes differ by at most one.
struct Share {
  Share(std::size_t count, int rank, int size)
      : begin(count * static_cast<std::size_t>(rank) / static_cast<std::size_t>(size)),
        end(count * static_cast<std::size_t>(rank + 1) / static_cast<std::size_t>(size)) {}
  std::size_t begin, end;
};

}  // namespace digits
