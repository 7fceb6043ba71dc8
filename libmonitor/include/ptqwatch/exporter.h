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

/// How a failure to set up the monitor affects the trainer.
enum class OnFailure {
  /// Training goes on: the monitor only reports the reason.
  kInert,
  /// Create returns the error.
  kError,
};

/// Carries reports and events out of the process.
///
/// OnReport and OnEvent are called by one thread at a time, mostly the monitor thread, and never
/// after Stop. They must return at once: queue, or drop and count (StatusSource::CountDrop), but
/// never wait. They should not throw; an exception is counted, logged and announced by an event
/// (Event::Kind::kExporterFailed).
class PTQWATCH_EXPORT Exporter {
 public:
  virtual ~Exporter() = default;
  /// Short name for metrics and messages: "my_dashboard".
  virtual std::string_view name() const = 0;
  /// Called once, inside Monitor::Create. `source` and `control` stay valid until Stop returns. If
  /// it fails, the exporter is left out, or Create fails with MonitorOptions::on_failure = kError.
  virtual absl::Status Start(StatusSource* source, Control* control) = 0;
  virtual void OnReport(std::shared_ptr<const AnalyzedReport> report) = 0;
  virtual void OnEvent(const Event&) {}
  /// Ends threads and connections within the deadline; idempotent.
  virtual void Stop(std::chrono::milliseconds deadline) = 0;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_EXPORTER_H_
