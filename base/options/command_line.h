// Reads a command line by a table of options. It is split here where Boost.ProgramOptions cannot: options end at the first
// word that is none, may have one dash or two, '_' stands for '-', and "-np 4", "-np=4" and "--np 4" are the same.
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
  std::string typed;  // as the user wrote it, for messages: "-np"
  std::string value;  // "" for a switch
};

struct CommandLine {
  std::vector<GivenOption> options;
  std::vector<std::string> words;  // what follows the options
};

// A command line that cannot be: the sentence names the option and what to give.
class OptionError : public Error {
 public:
  enum class Kind {
    kOption,
    kValue
  };  // an option that is unknown or given twice; a value that is missing or not wanted
  OptionError(Kind kind, std::string sentence) : Error(Code::kInvalidArgument, std::move(sentence)), kind_(kind) {}
  Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

// `program`: its name, for "see NAME --help". Throws OptionError.
CommandLine split_command_line(OptionTable table, std::string_view program, const std::vector<std::string>& arguments);

// The values of a command line, by the long names of the table. The table and the command line outlive it.
class OptionValues {
 public:
  // Throws OptionError for an option that is given twice and may be only once.
  OptionValues(OptionTable table, const CommandLine& line);
  ~OptionValues();
  OptionValues(const OptionValues&) = delete;
  OptionValues& operator=(const OptionValues&) = delete;

  bool flag(const std::string& name) const;
  bool given(const std::string& name) const;
  // Of an option that was given.
  const std::string& text(const std::string& name) const;
  std::vector<std::string> texts(const std::string& name) const;  // of a repeatable one; empty if it was not given
  // The spelling that the user chose.
  std::string_view typed(std::string_view name) const noexcept;

 private:
  struct Map;
  const CommandLine& line_;
  std::unique_ptr<const Map> map_;
};

}  // namespace aiacc
