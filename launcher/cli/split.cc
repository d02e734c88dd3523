#include "launcher/cli/split.h"

#include "launcher/cli/mpirun_table.h"

namespace aiacc::launcher {

UsageError usage_error(const OptionError& error) {
  const bool value = error.kind() == OptionError::Kind::kValue;
  return UsageError(value ? MessageId::kValue : MessageId::kOption, error.message());
}

CommandLine split_command_line(const std::vector<std::string>& arguments) {
  try {
    return aiacc::split_command_line(option_table(), "aiaccrun", arguments, mpirun_option_table());
  } catch (const OptionError& error) {
    throw usage_error(error);
  }
}

}  // namespace aiacc::launcher
