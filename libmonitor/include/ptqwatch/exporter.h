#ifndef PTQWATCH_EXPORTER_H_
#define PTQWATCH_EXPORTER_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/loss_slice.h"
#include "ptqwatch/report.h"
#include "ptqwatch/step_info.h"

namespace ptqwatch {

/// Facts of a run that do not change while it runs.
struct RunInfo {
  std::string run_id;
  int attempt = 1;
  std::string fingerprint;
  std::string run_dir;             ///< empty: nothing is kept on disk
  int64_t parameters = 0;          ///< of the model
  int64_t covered_parameters = 0;  ///< in layers that are quantized
  std::string device;              ///< where the probes run, e.g. "cpu"
};

/// What became of a due snapshot.
enum class SnapshotResult : int {
  kTaken = 0,
  kSkippedBusy = 1,      ///< the staging slot still held the one before
  kSkippedMismatch = 2,  ///< tensors differ from those seen at Create
  kFailed = 3,           ///< copying threw
  kSkippedPaused = 4,    ///< a command had paused the monitor
};
inline constexpr int kSnapshotResults = 5;
/// "taken", "skipped_busy", "skipped_mismatch", "failed", "skipped_paused".
std::string_view ToString(SnapshotResult result);

enum class Health : int { kStarting = 0, kOk = 1, kDegraded = 2, kStopped = 3 };
/// "starting", "ok", "degraded", "stopped".
std::string_view ToString(Health health);

/// Upper bounds in seconds of the stall histogram; the last bucket is open.
inline constexpr std::array<double, 12> kStallBucketSeconds = {1e-6, 1e-5, 1e-4, 5e-4, 1e-3, 5e-3,
                                                               1e-2, 5e-2, 0.1,  0.5,  1.0,  5.0};

/// Counters and gauges as they are now. A copy: read it whenever you like, it costs well under a
/// microsecond.
struct MonitorStatus {
  std::optional<int64_t> step;  ///< absent before the first OnStep
  int64_t steps_total = 0;
  double last_step_unix_seconds = 0;  ///< coarse clock, a few milliseconds
  double learning_rate = 0;
  std::optional<int64_t> tokens;
  std::optional<double> training_loss_nats;
  LrPhase lr_phase = LrPhase::kUnknown;
  Health health = Health::kStarting;
  bool busy = false;  ///< a snapshot is being measured
  std::array<int64_t, kSnapshotResults> snapshots{};
  int64_t reports_total = 0;
  int64_t probe_failures_total = 0;
  int64_t state_write_failures_total = 0;  ///< of the state file in the run directory
  /// Steps at which a snapshot was due; their time inside OnStep is in the histogram, that of all
  /// others is not measured.
  std::array<int64_t, kStallBucketSeconds.size() + 1> stall_buckets{};
  double stall_seconds_total = 0;
  /// Training time lost to snapshots since the first step, over the time since then.
  std::optional<double> overhead_ratio;
  double duty_cycle = 1;
  /// {exporter name, reason} -> reports that this exporter did not deliver.
  std::map<std::pair<std::string, std::string>, int64_t> dropped_reports;
  /// The newest slice through the loss surface that was asked for.
  SliceStatus slice = {};
};

enum class Severity : int { kInfo = 0, kWarning = 1, kError = 2 };
/// "info", "warning", "error".
std::string_view ToString(Severity severity);

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

/// What exporters may read, from any thread, from Start until Stop returns.
class StatusSource {
 public:
  virtual ~StatusSource() = default;
  virtual const RunInfo& run() const = 0;
  virtual MonitorStatus status() const = 0;
  /// The newest report, or null.
  virtual std::shared_ptr<const AnalyzedReport> latest() const = 0;
  /// Counts a report that an exporter could not deliver.
  virtual void CountDrop(std::string_view exporter, std::string_view reason) = 0;
};

/// The only way back into a running monitor; all calls are thread-safe, return at once and take
/// effect at the next step.
class Control {
 public:
  virtual ~Control() = default;
  /// Takes a snapshot at the next step boundary.
  virtual void RequestSnapshot() = 0;
  virtual void Pause() = 0;
  virtual void Resume() = 0;
  /// Steps between snapshots. InvalidArgument unless positive.
  virtual absl::Status SetEvery(int64_t steps) = 0;
  /// Has a slice of the loss surface made, through two snapshots to come and the quantized second
  /// one; returns its number. MonitorStatus::slice tells how far it is and which file in run_dir it
  /// is in. From the first of the two snapshots on it costs the memory of one copy of the weights,
  /// after the report of the second points^2 evaluations of the curvature batches, during which
  /// later snapshots wait or are skipped. InvalidArgument for a quantizer that the run does not
  /// have and for `points` out of range; FailedPrecondition without run_dir, with curvature
  /// switched off, and while another one is under way.
  virtual absl::StatusOr<int64_t> RequestSlice(const SliceRequest& request) = 0;
};

/// Carries reports out of the process. OnReport and OnEvent are called from the monitor's one
/// thread, never after Stop, and must return at once: queue, drop and count
/// (StatusSource::CountDrop), but never wait. Nothing may throw.
class Exporter {
 public:
  virtual ~Exporter() = default;
  /// A short name for metrics and messages: "prometheus", "journal".
  virtual std::string_view name() const = 0;
  /// Called once, inside Monitor::Create. `source` and `control` outlive the exporter's Stop. A
  /// failure makes Create fail.
  virtual absl::Status Start(StatusSource* source, Control* control) = 0;
  virtual void OnReport(std::shared_ptr<const AnalyzedReport> report) = 0;
  virtual void OnEvent(const Event&) {}
  /// Ends threads and connections within the deadline; idempotent.
  virtual void Stop(std::chrono::milliseconds deadline) = 0;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_EXPORTER_H_
