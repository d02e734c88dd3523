#include "launcher/cli/host_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/io/resolve.h"
#include "base/printable.h"

namespace aiacc::launcher {

namespace {

constexpr int kMaxSlots = 100'000;  // more is surely a typing error
constexpr int kMaxPort = 65'535;
constexpr std::size_t kMaxNameBytes = 255;  // the limit of DNS names; no account name is longer
constexpr std::size_t kShownBytes = 40;     // how much of an overlong entry a message quotes
constexpr std::array<std::string_view, 3> kKeys = {"slots", "port", "user"};
constexpr std::string_view kBlanks = " \t\r\v\f";

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
}

bool is_host_character(char c) { return is_name_character(c) || c == ':' || c == '%'; }

[[noreturn]] void bad_entry(std::string_view where, std::string_view entry, std::string_view why) {
  throw UsageError(MessageId::kHosts, fmt::format("{}: '{}' {}; write HOST or HOST:SLOTS, and [ADDRESS]:SLOTS for IPv6",
                                                  where, entry, why));
}

int number_up_to(std::string_view text, int highest) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc{} && end == text.data() + text.size();
  return whole && number >= 1 && number <= highest ? number : 0;
}

// The name becomes an argument of ssh, so it must not look like an option.
void check_name(std::string_view where, std::string_view entry, std::string_view name, std::string_view what,
                bool (*allowed)(char)) {
  if (name.empty()) bad_entry(where, entry, fmt::format("names no {}", what));
  if (name.size() > kMaxNameBytes) {
    bad_entry(where, shortened(entry, kShownBytes),
              fmt::format("... has a {} name of {} characters; {} are possible", what, name.size(), kMaxNameBytes));
  }
  if (name.front() == '-') bad_entry(where, entry, fmt::format("has a {} that begins with a dash", what));
  const auto bad = std::find_if_not(name.begin(), name.end(), allowed);
  if (bad == name.end()) return;
  const std::string_view rest = name.substr(static_cast<std::size_t>(bad - name.begin()));
  bad_entry(where, entry,
            fmt::format("has a character that no {} name has ('{}')", what,
                        rest.substr(0, std::max<std::size_t>(printable_length(rest), 1))));
}

// A name with two or more colons must be an IPv6 address; "a:2:3" is a typing error.
void check_colons(std::string_view where, std::string_view entry, std::string_view name) {
  if (name.find(':') == std::string_view::npos || io::is_numeric_address(std::string(name.substr(0, name.find('%')))))
    return;
  bad_entry(where, entry, fmt::format("has colons and is no IPv6 address ('{}')", name));
}

int read_slots(std::string_view where, std::string_view entry, std::string_view text) {
  const int slots = number_up_to(text, kMaxSlots);
  if (slots == 0) {
    bad_entry(where, entry, fmt::format("has a number of slots that is not between 1 and {}", kMaxSlots));
  }
  return slots;
}

// name, name:slots, [v6], [v6]:slots, or a bare v6 address. A bare address cannot have slots: it has colons itself.
HostSpec parse_entry(std::string_view where, std::string_view entry, bool* has_slots) {
  HostSpec spec;
  spec.where = std::string(where);
  std::string_view rest = entry;
  if (const std::size_t at = rest.find('@'); at != std::string_view::npos) {
    check_name(where, entry, rest.substr(0, at), "user", is_name_character);
    spec.user = std::string(rest.substr(0, at));
    rest.remove_prefix(at + 1);
  }
  std::string_view name = rest;
  std::string_view slots;
  *has_slots = false;
  if (rest.starts_with('[')) {
    const std::size_t close = rest.find(']');
    if (close == std::string_view::npos) bad_entry(where, entry, "has no closing bracket");
    name = rest.substr(1, close - 1);
    rest.remove_prefix(close + 1);
    if (!rest.empty() && rest.front() != ':') bad_entry(where, entry, "goes on after its bracket");
    *has_slots = !rest.empty();
    if (*has_slots) slots = rest.substr(1);
  } else if (const std::size_t colon = rest.find(':'); colon != std::string_view::npos && colon == rest.rfind(':')) {
    name = rest.substr(0, colon);
    slots = rest.substr(colon + 1);
    *has_slots = true;
  }
  check_name(where, entry, name, "host", is_host_character);
  check_colons(where, entry, name);
  spec.name = std::string(name);
  if (*has_slots) spec.slots = read_slots(where, entry, slots);
  return spec;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (;;) {
    const std::size_t begin = line.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    const std::size_t end = std::min(line.find_first_of(kBlanks), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

void read_key(const std::string& where, std::string_view word, bool has_slots, HostSpec& spec) {
  const std::size_t equals = word.find('=');
  const std::string_view key = word.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? std::string_view{} : word.substr(equals + 1);
  auto refuse = [&](const std::string& why) {
    throw UsageError(MessageId::kHosts, fmt::format("{}: '{}' {}", where, word, why));
  };
  // Open MPI's: a host never has more ranks than slots without --oversubscribe.
  if (key == "max_slots" || key == "max-slots") {
    if (number_up_to(value, kMaxSlots) == 0) refuse(fmt::format("takes a whole number from 1 to {}", kMaxSlots));
    return;
  }
  if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end() || equals == std::string_view::npos) {
    if (number_up_to(word, kMaxSlots) > 0) refuse(fmt::format("is a number by itself; write slots={}", word));
    refuse("is none of slots=N, port=N and user=NAME, without blanks");
  }
  if (key == "slots") {
    if (has_slots) refuse("gives the host's slots a second time");
    spec.slots = number_up_to(value, kMaxSlots);
    if (spec.slots == 0) refuse(fmt::format("takes a whole number from 1 to {}", kMaxSlots));
  } else if (key == "port") {
    if (spec.port != 0) refuse("gives the host's port a second time");
    spec.port = number_up_to(value, kMaxPort);
    if (spec.port == 0) refuse(fmt::format("takes a whole number from 1 to {}", kMaxPort));
  } else {
    if (!spec.user.empty()) refuse("gives the host's user a second time");
    check_name(where, word, value, "user", is_name_character);
    spec.user = std::string(value);
  }
}

}  // namespace

std::vector<HostSpec> parse_hosts(std::string_view typed, std::string_view text) {
  std::vector<HostSpec> hosts;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view entry = rest.substr(0, comma);
    if (entry.empty()) {
      throw UsageError(MessageId::kHosts, fmt::format("{}: the list '{}' has an empty entry", typed, text));
    }
    bool has_slots = false;
    hosts.push_back(parse_entry(typed, entry, &has_slots));
    if (comma == std::string_view::npos) return hosts;
    rest.remove_prefix(comma + 1);
  }
}

std::vector<HostSpec> parse_host_file(const std::string& file, std::string_view text, int slots) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<HostSpec> hosts;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find('#'));
    const std::vector<std::string_view> words = words_of(line);
    if (words.empty()) continue;
    const std::string where = fmt::format("line {} of {}", number, file);
    bool has_slots = false;
    HostSpec spec = parse_entry(where, words.front(), &has_slots);
    for (std::size_t i = 1; i < words.size(); ++i) {
      read_key(where, words[i], has_slots, spec);
      has_slots = has_slots || words[i].starts_with("slots=");
    }
    if (!has_slots) spec.slots = slots;
    hosts.push_back(std::move(spec));
  }
  if (hosts.empty()) {
    throw UsageError(MessageId::kHosts, fmt::format("{} names no host; a line reads NAME slots=N", file));
  }
  return hosts;
}

}  // namespace aiacc::launcher
