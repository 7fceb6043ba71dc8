#ifndef PTQWATCH_EVENT_H_
#define PTQWATCH_EVENT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "ptqwatch/log.h"

namespace ptqwatch {

/// Something that happened between reports.
struct Event {
  enum class Kind : int {
    kSnapshotSkipped = 0,
    kPhaseChange = 1,
    kProbeDisabled = 2,
    kProbeFailed = 3,
    kExporterFailed = 4,
    kResumed = 5,
    kStopped = 6,
    kSlice = 7,  ///< a slice is begun, made, or failed
  };
  Kind kind = Kind::kSnapshotSkipped;
  Severity severity = Severity::kInfo;
  int64_t step = 0;
  double time_unix_seconds = 0;
  std::string message;
};
/// "snapshot_skipped", "phase_change", ...
std::string_view ToString(Event::Kind kind);

}  // namespace ptqwatch

#endif  // PTQWATCH_EVENT_H_
