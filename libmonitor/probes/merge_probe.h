#ifndef PTQWATCH_PROBES_MERGE_PROBE_H_
#define PTQWATCH_PROBES_MERGE_PROBE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/decay_shape.h"
#include "probes/average_measurement.h"
#include "probes/probe.h"
#include "probes/quantization_measurement.h"
#include "probes/recent_weights.h"
#include "ptqwatch/options.h"
#include "session/model_session.h"

namespace ptqwatch::internal {

/// Measures merges: weighted averages of the snapshots in the window of recent weights, that
/// emulate decays of the learning rate (MergeWeights). Measures as many of MergesOf the window as
/// the plan has, at snapshots that are in the window. Takes no memory beyond an average's.
class MergeProbe final : public Probe {
 public:
  static constexpr std::string_view kName = "merges";

  /// `quantization_cost` is that of the snapshot's own quantization, with `quantizers` of them on
  /// this rank. `session` and `recent` must outlive the probe.
  MergeProbe(ModelSession& session, const AveragingOptions& options,
             const QuantizationOptions& quantization, const ProbeCost& quantization_cost,
             size_t quantizers, const RecentWeights& recent);

  ProbeNeeds Needs(int64_t available) const override;
  ProbeResult Measure(const ProbeInput& input, const ExecutionContext& context) override;
  ProbeResult NotMeasured(ProbeStatus status, std::string detail) const override;

 private:
  const AveragingOptions options_;
  const AverageMeasurement measurement_;
  const RecentWeights& recent_;
  ProbeCost cost_;  // of a merge
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_MERGE_PROBE_H_
