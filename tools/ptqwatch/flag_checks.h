#ifndef PTQWATCH_TOOLS_PTQWATCH_FLAG_CHECKS_H_
#define PTQWATCH_TOOLS_PTQWATCH_FLAG_CHECKS_H_

#include <cstdint>

#include "CLI/CLI.hpp"

namespace ptqwatch::internal {

/// Removes the description that CLI11 would add to the help.
CLI::Validator Quiet(CLI::Validator validator);
/// Checks a duration: a number of at least 0.
CLI::Validator Seconds();
CLI::Validator AtLeast(int64_t least);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_FLAG_CHECKS_H_
