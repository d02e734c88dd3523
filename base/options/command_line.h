// Reads a command line by a table of options. Boost.ProgramOptions cannot split it by these rules: options end at the
// first word that is not one, may have one dash or two, '_' means '-', and "-np 4", "-np=4" and "--np 4" are the same.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/options/option_table.h"

namespace aiacc {

struct GivenOption {
  const OptionRow* row = nullptr;
  std::string typed;     // as the user wrote it, for messages: "-np"
  std::string value;     // "" for a switch
  std::string second{};  // the second value of an option with two; "" if both are in one word, NAME=VALUE
};

struct CommandLine {
  std::vector<GivenOption> options;
  std::vector<std::string> words;  // the words behind the options
};

// An invalid command line: the sentence names the option and what to give.
class OptionError : public Error {
 public:
  enum class Kind { kOption, kValue };  // an unknown or repeated option; a missing or superfluous value
  OptionError(Kind kind, std::string sentence) : Error(Code::kInvalidArgument, std::move(sentence)), kind_(kind) {}
  Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

// `program`: its name, for "see NAME --help". Options of `others` are accepted too, but never suggested. Throws
// OptionError.
CommandLine split_command_line(OptionTable table, std::string_view program, const std::vector<std::string>& arguments,
                               OptionTable others = {});

// The values of a command line, by the long names of the table. The table and the command line must outlive it.
class OptionValues {
 public:
  // Throws OptionError for a repeated option that is not repeatable.
  OptionValues(OptionTable table, const CommandLine& line);
  ~OptionValues();
  OptionValues(const OptionValues&) = delete;
  OptionValues& operator=(const OptionValues&) = delete;

  bool flag(const std::string& name) const;
  bool given(const std::string& name) const;
  // The value of an option that was given.
  const std::string& text(const std::string& name) const;
  // Its second value, if it has two; otherwise "".
  std::string_view second(std::string_view name) const noexcept;
  // The values of a repeatable option; empty if it was not given.
  std::vector<std::string> texts(const std::string& name) const;
  // The spelling that the user chose.
  std::string_view typed(std::string_view name) const noexcept;

 private:
  struct Map;
  const CommandLine& line_;
  std::unique_ptr<const Map> map_;
};

}  // namespace aiacc
