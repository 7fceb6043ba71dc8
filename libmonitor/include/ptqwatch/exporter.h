#ifndef PTQWATCH_EXPORTER_H_
#define PTQWATCH_EXPORTER_H_

#include <chrono>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "ptqwatch/control.h"
#include "ptqwatch/event.h"
#include "ptqwatch/report.h"
#include "ptqwatch/status.h"

namespace ptqwatch {

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
