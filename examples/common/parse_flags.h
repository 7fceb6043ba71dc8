#ifndef PTQWATCH_COMMON_PARSE_FLAGS_H_
#define PTQWATCH_COMMON_PARSE_FLAGS_H_

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace CLI {
class App;
}

namespace ptqwatch::examples {

/// Nothing where the program is to go on; else its exit code: 0 after --help, 2 after a mistake,
/// which is named in one line on standard error.
std::optional<int> ParseFlags(CLI::App& app, int argc, char** argv);

/// Writes "NAME: message" to standard error and returns 2, the exit code of a mistake in the flags.
int FailWithUsage(const std::string& message);

/// The value, or the end of the process with "NAME: OPTION: message" and exit code 2.
template <typename T>
T ValueOrExit(const std::string& option, absl::StatusOr<T> value) {
  if (!value.ok()) std::exit(FailWithUsage(option + ": " + std::string(value.status().message())));
  return *std::move(value);
}

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_COMMON_PARSE_FLAGS_H_
