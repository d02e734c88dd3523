#include "images.h"

#include <fstream>
#include <stdexcept>

namespace digits {

std::vector<Image> read_images(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path + "");
  std::vector<Image> images;
  std::string line;
  while (std::getline(file, line)) {
    if (line.size() != kPixels + 2 || line.back() < '0' || line.back() > '9') {
      throw std::runtime_error(path + ": line " + std::to_string(images.size() + 1) + " is not 64 pixels and a digit");
    }
    Image image{};
    for (std::size_t p = 0; p < kPixels; ++p) {
      const int value = line[p] <= '9' ? line[p] - '0' : line[p] - 'a' + 10;
      image.pixels[p] = value / 16.0;
    }
    image.digit = static_cast<std::size_t>(line.back() - '0');
    images.push_back(image);
  }
  return images;
}

}  // namespace digits
