// The options of other launchers that aiaccrun understands: Open MPI's mpirun (and PRRTE's), Hydra (MPICH and Intel
// MPI), horovodrun and torchrun. An option is translated to one of aiaccrun, or asks for what aiaccrun does anyway, or has no effect. In the
// last case aiaccrun prints what takes its place, and the job goes on. The list in aiaccrun(1), COMPATIBILITY, is
// generated from this table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/options/option_table.h"

namespace aiacc::launcher {

struct MpirunOption {
  enum class Effect {
    kMeans,    // `text`: an option of aiaccrun by its long name; with "=VALUE" unless the user's value is passed on
    kAlready,  // `text`: what aiaccrun does anyway
    kNone,     // `text`: what takes its place, one clause
    kRefused,  // `text`: why the job cannot go on, one clause
  };
  std::string_view name;      // as in OptionRow
  std::string_view aliases;   // as in OptionRow
  std::string_view argument;  // as in OptionRow; two words are two values
  Effect effect;
  std::string_view text;
};

// Values that mpirun has and aiaccrun does not, also of options that both have.
struct MpirunValue {
  // Its first name; "qualifier": the words behind a ':' in the value of --map-by and --bind-to.
  std::string_view option;
  std::string_view value;    // in lower case
  std::string_view means;    // as with kMeans, where kCpus stands for a number; "": the value has no effect
  std::string_view instead;  // what is lost in translation, one clause; "": nothing
};

// How many processors of this host are online: what torchrun starts for "cpu".
inline constexpr std::string_view kCpus = "CPUS";

std::span<const MpirunOption> mpirun_options() noexcept;
std::span<const MpirunValue> mpirun_values() noexcept;

// The options as rows for the parser, in the order of mpirun_options().
OptionTable mpirun_option_table();

// The list in the manual: lines of mdoc.
std::vector<std::string> mpirun_options_mdoc();

// Says that a ':' by itself behind the program separates programs, which is not supported: one sentence.
std::string_view several_programs() noexcept;

}  // namespace aiacc::launcher
