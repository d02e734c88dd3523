// Json::parse: recursive descent over RFC 8259, with a bound on nesting.
#include <fmt/format.h>

#include <charconv>

#include "base/error.h"
#include "base/json.h"
#include "base/json_text.h"

namespace aiacc {

namespace {

constexpr int kDeepest = 100;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Json document() {
    Json value = read(0);
    blanks();
    if (at_ != text_.size()) fail("something follows the value");
    return value;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw Error(Code::kInvalidArgument, fmt::format("no JSON at byte {} of {}: {}", at_, text_.size(), what));
  }
  void blanks() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool accept(char c) {
    blanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("'{}' is missing", c));
  }
  bool accept_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Json read(int depth) {
    if (depth > kDeepest) fail("it is nested too deeply");
    blanks();
    if (accept('{')) return object(depth);
    if (accept('[')) return array(depth);
    if (at_ < text_.size() && text_[at_] == '"') return string();
    if (accept_word("null")) return {};
    if (accept_word("true")) return true;
    if (accept_word("false")) return false;
    return number();
  }

  Json object(int depth) {
    Json::Object members;
    if (accept('}')) return members;
    do {
      blanks();
      std::string name = string();
      expect(':');
      members.emplace_back(std::move(name), read(depth + 1));
    } while (accept(','));
    expect('}');
    return members;
  }

  Json array(int depth) {
    Json::Array items;
    if (accept(']')) return items;
    do {
      items.push_back(read(depth + 1));
    } while (accept(','));
    expect(']');
    return items;
  }

  Json number() {
    const std::size_t end = std::min(text_.find_first_not_of("+-.0123456789eE", at_), text_.size());
    const char* const first = text_.data() + at_;
    const char* const last = text_.data() + end;
    std::int64_t whole = 0;
    double real = 0;
    const auto as_whole = std::from_chars(first, last, whole);
    const bool is_whole = as_whole.ec == std::errc{} && as_whole.ptr == last;
    const auto as_real = std::from_chars(first, last, real);
    if (!is_whole && (as_real.ec != std::errc{} || as_real.ptr != last)) fail("a value is missing");
    at_ = end;
    return is_whole ? Json(whole) : Json(real);
  }

  std::uint32_t four_digits() {
    std::uint32_t code = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() != 4 || read.ptr != digits.data() + 4) fail("\\u needs four hexadecimal digits");
    at_ += 4;
    return code;
  }

  void escape(std::string& into) {
    if (at_ == text_.size()) fail("a string has no end");
    const char c = text_[at_++];
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kMeant = "\"\\/\b\f\n\r\t";
    if (c != 'u') {
      const std::size_t which = kNames.find(c);
      if (which == std::string_view::npos) fail(fmt::format("'\\{}' means nothing", c));
      into += kMeant[which];
      return;
    }
    std::uint32_t code = four_digits();
    if (code >= 0xD800 && code < 0xDC00 && accept_word("\\u")) {
      code = 0x10000 + ((code - 0xD800) << 10) + (four_digits() & 0x3FF);
    }
    append_utf8(code, into);
  }

  std::string string() {
    expect('"');
    std::string result;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '"') return result;
      if (c == '\\') {
        escape(result);
      } else {
        result += c;
      }
    }
    fail("a string has no end");
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

Json Json::parse(std::string_view text) { return Parser(text).document(); }

}  // namespace aiacc
