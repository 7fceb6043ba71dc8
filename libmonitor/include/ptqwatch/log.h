#ifndef PTQWATCH_LOG_H_
#define PTQWATCH_LOG_H_

#include <functional>
#include <string_view>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"

namespace ptqwatch {

enum class Severity : int { kInfo = 0, kWarning = 1, kError = 2 };
/// "info", "warning", "error".
PTQWATCH_EXPORT std::string_view ToString(Severity severity);
/// InvalidArgument, listing the known names, for any other name.
PTQWATCH_EXPORT absl::StatusOr<Severity> ParseSeverity(std::string_view name);

/// Receives the library's messages, on any thread. Must not throw and must not call back into
/// ptqwatch.
using LogSink = std::function<void(Severity, std::string_view message)>;

/// Replaces the process-wide sink and the lowest severity it receives; an empty function silences
/// the library. The default sink writes warnings and errors to stderr, a line each. A message that
/// repeats comes at most once in 10 s. Thread-safe.
PTQWATCH_EXPORT void SetLogSink(Severity lowest, LogSink sink);

}  // namespace ptqwatch

#endif  // PTQWATCH_LOG_H_
