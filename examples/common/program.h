#ifndef PTQWATCH_COMMON_PROGRAM_H_
#define PTQWATCH_COMMON_PROGRAM_H_

#include <stdexcept>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace CLI {
class App;
}

namespace ptqwatch::examples {

/// A mistake in the flags or in the files that they name.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Returns the value. Throws UsageError with `prefix` and the status's message if there is none.
template <typename T>
T OrUsageError(absl::StatusOr<T> value, const std::string& prefix = "") {
  if (!value.ok()) throw UsageError(prefix + std::string(value.status().message()));
  return *std::move(value);
}

/// Parses the command line. Throws UsageError for a mistake. --help ends the process.
void ParseFlags(CLI::App& app, int argc, char** argv);

/// Runs the body of a main function and returns its exit code. An exception becomes one line "NAME:
/// message" on standard error and exit code 2 for UsageError, 1 for any other.
int RunProgram(absl::FunctionRef<int()> body);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_COMMON_PROGRAM_H_
