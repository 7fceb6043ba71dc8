#ifndef PTQWATCH_TOOLS_PTQWATCH_FLAG_CHECKS_H_
#define PTQWATCH_TOOLS_PTQWATCH_FLAG_CHECKS_H_

#include <cstdint>

#include "CLI/CLI.hpp"

namespace ptqwatch::internal {

/// Without the description that CLI11 would put into the help.
CLI::Validator Quiet(CLI::Validator validator);
/// A duration: a number from 0 on.
CLI::Validator Seconds();
CLI::Validator AtLeast(int64_t least);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_FLAG_CHECKS_H_
