// TuneCache: what the tuner of gradient engines found in earlier jobs, in a small file of text: a line for each model and placement
// of ranks, the last used last: its key in hexadecimal, fusion size, allreduces at a time, time as a logarithm, and the algorithm if it
// is not selection's choice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "groupcomm/gradient/tuner.h"

namespace aiacc::gradient {

class TuneCache {
 public:
  static constexpr std::size_t kMostLines = 200;
  struct Entry {
    TunedSetting setting;
    std::int32_t log_time = 0;
    bool operator==(const Entry&) const = default;
  };

  // An empty path: nothing is remembered.
  explicit TuneCache(std::string path) : path_(std::move(path)) {}

  // A file that is not whole counts as empty; `complaint` is then a sentence, and otherwise empty.
  std::optional<Entry> find(std::uint64_t key, std::string& complaint) const;
  // Replaces the file, so that a reader sees the old one or the new one. Returns a sentence if that fails, and otherwise "".
  std::string put(std::uint64_t key, const Entry& entry) const;

 private:
  std::string path_;
};

}  // namespace aiacc::gradient
