#ifndef PTQWATCH_LOG_H_
#define PTQWATCH_LOG_H_

#include <functional>
#include <string_view>

namespace ptqwatch {

enum class Severity : int { kInfo = 0, kWarning = 1, kError = 2 };
/// "info", "warning", "error".
std::string_view ToString(Severity severity);

/// Receives the library's messages: may be called from any thread, must not throw, must not call
/// back into ptqwatch.
using LogSink = std::function<void(Severity, std::string_view message)>;

/// Replaces the process-wide sink and the least severity it gets. The default writes warnings and
/// errors to stderr, one line each. Messages of one kind are limited to one every 10 s by their
/// senders. An empty function silences the library. Thread-safe.
void SetLogSink(Severity least, LogSink sink);

}  // namespace ptqwatch

#endif  // PTQWATCH_LOG_H_
