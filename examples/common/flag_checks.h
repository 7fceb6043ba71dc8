#ifndef PTQWATCH_COMMON_FLAG_CHECKS_H_
#define PTQWATCH_COMMON_FLAG_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace ptqwatch::examples {

/// Checks for CLI11 options. A value that fails gives the one line "OPTION: VALUE is not ...".
CLI::Validator IntegerAtLeast(int64_t least);
/// Finite, at least `least` and, unless it is `greatest`, below infinity.
CLI::Validator RealBetween(double least, double greatest);
CLI::Validator PositiveReal();
CLI::Validator OneOf(std::vector<std::string> choices);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_COMMON_FLAG_CHECKS_H_
