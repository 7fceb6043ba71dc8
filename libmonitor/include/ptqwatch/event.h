#ifndef PTQWATCH_EVENT_H_
#define PTQWATCH_EVENT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/log.h"

namespace ptqwatch {

/// Something that happened between reports. Delivered to every exporter in the order it happened.
struct Event {
  enum class Kind : int {
    kSnapshotSkipped = 0,  ///< due snapshots were not taken
    kPhaseChange = 1,      ///< the learning rate entered a new phase; `step` is its first step
    kProbeDisabled = 2,    ///< a probe failed too often in a row
    kProbeFailed = 3,      ///< a snapshot was not measured, or only partly
    kExporterFailed = 4,   ///< an exporter could not be started, or threw
    kResumed = 5,          ///< a run directory was resumed
    kStopped = 6,          ///< Monitor::Stop was called; the last event
    kSlice = 7,            ///< a slice began, was made, or failed
    kPlanChanged = 8,      ///< later snapshots are measured with another Report::plan
    kInert = 9,            ///< Monitor::Create failed; the only event of an inert monitor
    kAlert = 10,  ///< the verdict became an alarm, became another alarm, or is an alarm no longer
    kCooldown = 11,      ///< a shadow cooldown began, ended, or failed
    kMisuse = 12,        ///< the trainer seems to pass wrong steps or rates, or another model
    kServerFailed = 13,  ///< the server beside the run cannot be started, or serves again
    kWorkerFailed = 14,  ///< Python: the process that measures ended and was started again
    /// The parameters of a run's ranks differ, or are equal again. Made by the reader of all ranks.
    kReplicasDiverged = 15,
  };
  Kind kind = Kind::kSnapshotSkipped;
  Severity severity = Severity::kInfo;
  int64_t step = 0;
  double time_unix_seconds = 0;
  std::string message;
  friend bool operator==(const Event&, const Event&) = default;
};
inline constexpr int kEventKinds = 16;
/// "snapshot_skipped", "phase_change", "probe_disabled", "probe_failed", "exporter_failed",
/// "resumed", "stopped", "slice", "plan_changed", "inert", "alert", "cooldown", "misuse",
/// "server_failed", "worker_failed", "replicas_diverged".
PTQWATCH_EXPORT std::string_view ToString(Event::Kind kind);
/// InvalidArgument, listing the known names, for any other name.
PTQWATCH_EXPORT absl::StatusOr<Event::Kind> ParseEventKind(std::string_view name);

/// The event's line in a journal, without a newline: {"event": {...}}, with the member names as
/// keys.
PTQWATCH_EXPORT std::string EventToJson(const Event& event);
/// Whether a line of a journal holds an event rather than a report.
PTQWATCH_EXPORT bool IsEventJson(std::string_view line);
/// Reads a line written by EventToJson of this or another version. InvalidArgument for any other
/// line and for an event kind unknown to this version.
PTQWATCH_EXPORT absl::StatusOr<Event> EventFromJson(std::string_view line);

}  // namespace ptqwatch

#endif  // PTQWATCH_EVENT_H_
