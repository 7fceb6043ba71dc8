#ifndef PTQWATCH_TOOLS_PTQWATCH_MAN_PAGE_H_
#define PTQWATCH_TOOLS_PTQWATCH_MAN_PAGE_H_

#include <string>

#include "program_help.h"

namespace ptqwatch::internal {

/// A page of section 1 in the language of man(7), as `man -l` shows it.
std::string ManPage(const ProgramHelp& help);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_MAN_PAGE_H_
