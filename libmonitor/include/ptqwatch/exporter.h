#ifndef PTQWATCH_EXPORTER_H_
#define PTQWATCH_EXPORTER_H_

#include <chrono>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "ptqwatch/config.h"
#include "ptqwatch/control.h"
#include "ptqwatch/event.h"
#include "ptqwatch/report.h"
#include "ptqwatch/status.h"

namespace ptqwatch {

/// What a failure to set the monitor up means for the trainer.
enum class OnFailure {
  /// Nothing: the monitor, or the exporter that cannot listen, does nothing but say why.
  kInert,
  /// Create returns the error.
  kError,
};

/// Carries reports and events out of the process.
///
/// OnReport and OnEvent are called by one thread at a time, never after Stop: by the monitor
/// thread, and by Monitor::Stop for the last event. They must return at once: queue, drop and count
/// (StatusSource::CountDrop), but never wait. Nothing should throw; what does is counted and
/// reported to the other exporters.
class PTQWATCH_EXPORT Exporter {
 public:
  virtual ~Exporter() = default;
  /// Short name for metrics and messages: "prometheus", "grpc".
  virtual std::string_view name() const = 0;
  /// Called once, inside Monitor::Create. `source` and `control` outlive the exporter's Stop. After
  /// a failure the exporter is left out; with MonitorOptions::on_failure = kError, Create fails.
  virtual absl::Status Start(StatusSource* source, Control* control) = 0;
  virtual void OnReport(std::shared_ptr<const AnalyzedReport> report) = 0;
  virtual void OnEvent(const Event&) {}
  /// Ends threads and connections within the deadline; idempotent.
  virtual void Stop(std::chrono::milliseconds deadline) = 0;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_EXPORTER_H_
