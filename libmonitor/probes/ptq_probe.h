#ifndef PTQWATCH_PROBES_PTQ_PROBE_H_
#define PTQWATCH_PROBES_PTQ_PROBE_H_

#include <vector>

#include "absl/status/status.h"
#include "capture/capture_plan.h"
#include "capture/model_quantizer.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"
#include "ptqwatch/report.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// The specs of each quantizer, one a layer of the plan.
std::vector<LayerSpecs> SpecsOfLayers(const MonitorOptions& options, const CapturePlan& plan);

/// Measures what post-training quantization costs: quantizes the covered layers of the loaded
/// snapshot with every spec (ModelQuantizer) and compares the loss with the full-precision one on
/// the same tokens. One full-precision pass serves all specs.
class PtqProbe {
 public:
  /// Nothing is copied; all arguments must outlive the probe.
  PtqProbe(const MonitorOptions& options, const CapturePlan& plan, const std::vector<Batch>& probe,
           const std::vector<Batch>& calibration)
      : options_(options), plan_(plan), probe_(probe), calibration_(calibration) {}

  /// Fills the probe's part of `report`; every failure becomes a status in it. `quantized` receives
  /// the quantized weights, one list a quantizer, empty where it failed. Returns Cancelled when the
  /// context was, else ok.
  absl::Status Run(Replica& replica, Report& report,
                   std::vector<std::vector<Replica::Override>>& quantized,
                   const ExecutionContext& context);

 private:
  class FullPrecision;
  class Results;
  absl::Status Compare(Replica& replica, FullPrecision& full,
                       const std::vector<Replica::Override>& weights, QuantizationReport& result,
                       const ExecutionContext& context) const;

  const MonitorOptions& options_;
  const CapturePlan& plan_;
  const std::vector<Batch>& probe_;
  const std::vector<Batch>& calibration_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_PTQ_PROBE_H_
