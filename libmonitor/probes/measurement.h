#ifndef PTQWATCH_PROBES_MEASUREMENT_H_
#define PTQWATCH_PROBES_MEASUREMENT_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "capture/capture_plan.h"
#include "probes/curvature_probe.h"
#include "probes/probe_state.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"
#include "ptqwatch/report.h"
#include "ptqwatch/subject.h"
#include "session/model_session.h"
#include "snapshot/replica.h"
#include "trainer/staging.h"

namespace ptqwatch::internal {

/// Everything between a snapshot and its report: replica, capture plan and probes. One thread at a
/// time.
class Measurement {
 public:
  /// Opens the subject, which must outlive the result. Errors as Monitor::Create.
  static absl::StatusOr<std::unique_ptr<Measurement>> Create(
      Subject& subject, const MonitorOptions& options, const CurvatureEngineOptions& engine = {});

  /// Copies the snapshot, its weights into the replica; it is not needed afterwards.
  void Load(const Snapshot& snapshot);

  /// Measures what is loaded. Fills everything of `report` that is a measurement, and
  /// `probe_state_sequence`; the same loaded weights, options and state give the same bits (but for
  /// `cost_seconds`) on any thread set up by InitMonitorThread. Returns the state for the report
  /// after this one. `quantized`, where given, receives the weights of each quantizer, empty where
  /// there are none. Cancelled when the context was.
  absl::StatusOr<ProbeState> Run(const ProbeState& state, Report& report,
                                 std::vector<std::vector<Replica::Override>>* quantized = nullptr,
                                 const ExecutionContext& context = {});

  /// Null where curvature is switched off.
  CurvatureProbe* curvature() { return curvature_.get(); }

  ModelSession& session() { return *session_; }
  const CapturePlan& plan() const { return session_->plan(); }
  /// Those of the options, or the default ones.
  const std::vector<QuantizerSpec>& quantizers() const { return options_.quantizers; }
  const Replica& replica() const { return session_->replica(); }
  Replica& replica() { return session_->replica(); }
  /// Hex digest of parameter table, batches, specs and seed.
  const std::string& fingerprint() const { return fingerprint_; }
  /// The multi-line text behind Monitor::Describe.
  std::string Describe() const;

 private:
  explicit Measurement(const MonitorOptions& options);
  std::string Fingerprint() const;
  // What calibrating costs, in words, and how often it takes the calibration data through the
  // replica.
  std::pair<std::string, int64_t> DescribeCalibration() const;

  MonitorOptions options_;
  std::unique_ptr<ModelSession> session_;
  std::unique_ptr<CurvatureProbe> curvature_;
  OptimizerState optimizer_;
  std::string fingerprint_;
  double seconds_a_batch_ = 0;  // one forward pass at Create
};

/// Sets the calling thread up for measuring, without touching any other: one OpenMP thread, and a
/// backward pass that stays on it.
void InitMonitorThread();

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_MEASUREMENT_H_
