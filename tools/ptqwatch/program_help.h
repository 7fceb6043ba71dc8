#ifndef PTQWATCH_TOOLS_PTQWATCH_PROGRAM_HELP_H_
#define PTQWATCH_TOOLS_PTQWATCH_PROGRAM_HELP_H_

#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace ptqwatch::internal {

/// An option or, without names, a positional argument.
struct OptionHelp {
  std::vector<std::string> names;  ///< with their dashes, short ones first
  std::string value;               ///< what stands for its value, e.g. "FILE"; empty for flags
  std::string text;
  bool required = false;
  bool many = false;  ///< a positional that may be given several times

  /// The words among the alternatives of `value`: "now" of "SEQUENCE|now".
  std::vector<std::string> words() const;
  bool takes_path() const;
};

struct CommandHelp {
  std::string name;
  std::string text;
  std::string notes;  ///< below the help, formatted
  std::vector<OptionHelp> options;
  std::vector<OptionHelp> positionals;
};

/// What a command line program says of itself, as values.
struct ProgramHelp {
  CommandHelp program;                ///< with the options before a subcommand
  std::vector<CommandHelp> commands;  ///< its subcommands
};

ProgramHelp ReadHelp(const CLI::App& app);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_PROGRAM_HELP_H_
