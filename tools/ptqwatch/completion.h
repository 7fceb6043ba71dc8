#ifndef PTQWATCH_TOOLS_PTQWATCH_COMPLETION_H_
#define PTQWATCH_TOOLS_PTQWATCH_COMPLETION_H_

#include <string>

#include "program_help.h"

namespace ptqwatch::internal {

// Scripts with which a shell completes subcommands, options and their values.
std::string BashCompletion(const ProgramHelp& help);
std::string ZshCompletion(const ProgramHelp& help);
std::string FishCompletion(const ProgramHelp& help);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_COMPLETION_H_
