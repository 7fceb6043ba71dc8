#ifndef PTQWATCH_PROCESS_OPTIONS_H_
#define PTQWATCH_PROCESS_OPTIONS_H_

#include <chrono>
#include <string>
#include <vector>

namespace ptqwatch {

/// A process of its own that measures (MonitorOptions::process). The program calls
/// MeasureForTrainer (ptqwatch/measure_for_trainer.h) with the same subject and the same options.
struct ProcessOptions {
  /// Path of the program. Empty: the trainer's own program, which then begins by asking
  /// IsMeasuringProcess.
  std::string program = {};
  std::vector<std::string> arguments = {};
  /// Create waits this long until the process measures; then training goes on without it, and it
  /// begins when it is ready.
  std::chrono::milliseconds start_timeout{120'000};
  /// A process whose losses closure gives no sign of life for this long is replaced; 0: never.
  std::chrono::milliseconds longest_silence{1'800'000};
};

}  // namespace ptqwatch

#endif  // PTQWATCH_PROCESS_OPTIONS_H_
