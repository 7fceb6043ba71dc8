#ifndef PTQWATCH_PROBES_CURVATURE_PROBE_H_
#define PTQWATCH_PROBES_CURVATURE_PROBE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "probes/probe_state.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"
#include "ptqwatch/report.h"
#include "session/curvature_setup.h"
#include "session/model_session.h"
#include "snapshot/optimizer_staging.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

class HessianOperator;

/// Measures the Hessian of the loss at the loaded snapshot, always on the same batches: the ends of
/// its spectrum, the distance to the edge of stability, its trace, and the loss along every
/// quantizer's error.
class CurvatureProbe {
 public:
  /// The session has curvature batches and a plan. Where no way of making products with the Hessian
  /// works, or the batches cannot be used, the probe is made all the same and says why in every
  /// report; with a mode other than kAuto that is FailedPrecondition.
  static absl::StatusOr<std::unique_ptr<CurvatureProbe>> Create(
      ModelSession& session, const MonitorOptions& options, const CurvatureEngineOptions& engine);

  /// Fills `report.curvature`, and what is measured along the error of each entry of
  /// `report.quantization` that has weights in `quantized` (one list an entry, empty where there
  /// are none). `state` is what the snapshot before left, `next` receives the vectors of this one
  /// (those of before where it fails). A quantizer whose loss is not finite gets no prediction.
  /// With CurvatureOptions::mode kAuto, where memory runs out it is measured again in the next
  /// smaller mode, from then on. Every failure becomes a status in the report. Returns Cancelled
  /// when the context was, else ok.
  absl::Status Run(Replica& replica, const std::vector<std::vector<Replica::Override>>& quantized,
                   const OptimizerState& optimizer, const ProbeState& state, Report& report,
                   ProbeState& next, const ExecutionContext& context);

  /// Every later report says that the probe is switched off, and why.
  void Disable(std::string reason) { unavailable_ = std::move(reason); }

  const std::vector<Batch>& batches() const { return target_.batches; }
  /// Entries of the replica's table that the Hessian is taken with respect to.
  const std::vector<int>& scope() const { return target_.scope; }
  const CurvatureEngineOptions& engine() const { return engine_; }
  /// One line for Monitor::Describe.
  std::string Describe() const;
  /// Why nothing is measured; empty where it is.
  const std::string& unavailable() const { return unavailable_; }

 private:
  CurvatureProbe(CurvatureTarget target, const CurvatureOptions& options,
                 const CurvatureEngineOptions& engine)
      : options_(options), engine_(engine), target_(std::move(target)) {}
  absl::Status Measure(Replica& replica,
                       const std::vector<std::vector<Replica::Override>>& quantized,
                       const OptimizerState& optimizer, const ProbeState& state, Report& report,
                       CurvatureReport& curvature, ProbeState& next,
                       const ExecutionContext& context);
  absl::Status MeasureSpectrum(Replica& replica, HessianOperator& hessian,
                               const OptimizerState& optimizer, const ProbeState& state,
                               Report& report, CurvatureReport& curvature, ProbeState& next,
                               const ExecutionContext& context);

  CurvatureOptions options_;
  CurvatureEngineOptions engine_;
  CurvatureTarget target_;
  CurvatureSetup setup_;  // as long as the probe is available
  std::string unavailable_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_CURVATURE_PROBE_H_
