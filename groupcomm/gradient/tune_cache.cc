#include "groupcomm/gradient/tune_cache.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>
#include <vector>

#include "base/whole_file.h"

namespace aiacc::gradient {
namespace {

constexpr const char* kFirstLine = "aiacc-tune 1";
constexpr std::uintmax_t kMostBytes = 64 << 10;

struct Line {
  std::uint64_t key = 0;
  TuneCache::Entry entry;
};

bool is_possible(const TuneCache::Entry& entry) {
  constexpr std::uint64_t kLeast = 64, kMost = std::uint64_t{16} << 30;
  constexpr int kMostInFlight = 64;
  constexpr int kMostAlgorithms = 32;
  constexpr std::int32_t kMostLog = 64 * Tuner::kOctave;
  return entry.setting.fusion_bytes >= kLeast && entry.setting.fusion_bytes <= kMost && entry.setting.in_flight >= 1 &&
         entry.setting.in_flight <= kMostInFlight && entry.setting.algorithm >= 0 &&
         entry.setting.algorithm < kMostAlgorithms && entry.log_time >= 0 && entry.log_time <= kMostLog;
}

bool read_algorithm(const std::string& text, TunedSetting& setting) {
  if (text.empty()) return true;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), setting.algorithm);
  return error == std::errc() && end == text.data() + text.size();
}

// nullopt: the file is not whole. A file that is not there has no lines.
std::optional<std::vector<Line>> read_lines(const std::string& path) {
  std::vector<Line> lines;
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return lines;
  if (!std::filesystem::is_regular_file(path, none) || std::filesystem::file_size(path, none) > kMostBytes)
    return std::nullopt;
  std::ifstream file(path);
  std::string text;
  if (!std::getline(file, text) || text != kFirstLine) return std::nullopt;
  while (std::getline(file, text)) {
    std::istringstream words(text);
    Line line;
    words >> std::hex >> line.key >> std::dec >> line.entry.setting.fusion_bytes >> line.entry.setting.in_flight >>
        line.entry.log_time;
    if (words.fail()) return std::nullopt;
    std::string algorithm, rest;
    words >> algorithm >> rest;
    if (!rest.empty() || !read_algorithm(algorithm, line.entry.setting) || !is_possible(line.entry))
      return std::nullopt;
    lines.push_back(line);
  }
  if (file.bad()) return std::nullopt;
  return lines;
}

}  // namespace

std::optional<TuneCache::Entry> TuneCache::find(std::uint64_t key, std::string& complaint) const {
  complaint.clear();
  if (path_.empty()) return std::nullopt;
  const std::optional<std::vector<Line>> lines = read_lines(path_);
  if (!lines) {
    complaint = fmt::format("'{}' is not a file of the tuner, or not whole: it is ignored", path_);
    return std::nullopt;
  }
  for (auto line = lines->rbegin(); line != lines->rend(); ++line)
    if (line->key == key) return line->entry;
  return std::nullopt;
}

std::string TuneCache::put(std::uint64_t key, const Entry& entry) const {
  if (path_.empty()) return {};
  std::vector<Line> lines = read_lines(path_).value_or(std::vector<Line>{});
  std::erase_if(lines, [key](const Line& line) { return line.key == key; });
  if (lines.size() >= kMostLines) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(kMostLines - 1));
  lines.push_back({key, entry});
  std::string text = fmt::format("{}\n", kFirstLine);
  for (const Line& line : lines) {
    const auto& [setting, log_time] = line.entry;
    text += fmt::format("{:016x} {} {} {}", line.key, setting.fusion_bytes, setting.in_flight, log_time);
    text += setting.algorithm == 0 ? "\n" : fmt::format(" {}\n", setting.algorithm);
  }
  std::error_code none;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), none);
  const int error = write_whole_file(path_, text);
  if (error == 0) return {};
  return fmt::format("what the tuner found cannot be written to '{}': {}", path_,
                     std::generic_category().message(error));
}

}  // namespace aiacc::gradient
