// The table on top of Boost.ProgramOptions, which gets the given options in one form and stores their values.
#include <fmt/format.h>

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>
#include <boost/program_options/variables_map.hpp>
#include <set>

#include "base/options/command_line.h"

namespace aiacc {

namespace {

namespace po = boost::program_options;
using Texts = std::vector<std::string>;

po::options_description describe_for_boost(OptionTable table) {
  po::options_description description;
  for (const OptionRow& row : table) {
    const std::string name(row.name);
    if (row.argument.empty()) {
      description.add_options()(name.c_str(), po::bool_switch());
    } else if (row.repeatable) {
      description.add_options()(name.c_str(), po::value<Texts>()->composing());
    } else {
      description.add_options()(name.c_str(), po::value<std::string>());
    }
  }
  return description;
}

// The given options in the long form that Boost gets.
Texts in_long_form(const std::vector<GivenOption>& options) {
  Texts words;
  std::set<const OptionRow*> switches;
  for (const GivenOption& option : options) {
    if (!option.row->argument.empty()) {
      words.push_back(fmt::format("--{}={}", option.row->name, option.value));
    } else if (switches.insert(option.row).second) {  // a switch given twice is on
      words.push_back(fmt::format("--{}", option.row->name));
    }
  }
  return words;
}

po::variables_map read_with_boost(OptionTable table, const std::vector<GivenOption>& options) {
  po::variables_map map;
  const po::options_description description = describe_for_boost(table);
  try {
    const int style = po::command_line_style::allow_long | po::command_line_style::long_allow_adjacent;
    po::store(po::command_line_parser(in_long_form(options)).options(description).style(style).run(), map);
  } catch (const po::multiple_occurrences& error) {
    std::string name = error.get_option_name();
    name.erase(0, name.find_first_not_of('-'));
    throw OptionError(OptionError::Kind::kOption, fmt::format("{} is given twice; give it once", spelled(name)));
  } catch (const po::error& error) {
    throw Error(Code::kInternal,
                fmt::format("the option parser refused what the splitter let through: {}", error.what()));
  }
  return map;
}

}  // namespace

struct OptionValues::Map {
  po::variables_map values;
};

OptionValues::OptionValues(OptionTable table, const CommandLine& line)
    : line_(line), map_(std::make_unique<const Map>(Map{read_with_boost(table, line.options)})) {}

OptionValues::~OptionValues() = default;

bool OptionValues::flag(const std::string& name) const { return map_->values[name].as<bool>(); }

bool OptionValues::given(const std::string& name) const { return map_->values.count(name) != 0; }

const std::string& OptionValues::text(const std::string& name) const { return map_->values[name].as<std::string>(); }

std::vector<std::string> OptionValues::texts(const std::string& name) const {
  return given(name) ? map_->values[name].as<Texts>() : Texts{};
}

std::string_view OptionValues::second(std::string_view name) const noexcept {
  for (const GivenOption& option : line_.options) {
    if (option.row->name == name) return option.second;
  }
  return {};
}

std::string_view OptionValues::typed(std::string_view name) const noexcept {
  for (const GivenOption& option : line_.options) {
    if (option.row->name == name) return option.typed;
  }
  return name;
}

}  // namespace aiacc
