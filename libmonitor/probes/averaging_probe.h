#ifndef PTQWATCH_PROBES_AVERAGING_PROBE_H_
#define PTQWATCH_PROBES_AVERAGING_PROBE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "probes/average_measurement.h"
#include "probes/probe.h"
#include "probes/quantization_measurement.h"
#include "probes/recent_weights.h"
#include "ptqwatch/options.h"
#include "session/model_session.h"

namespace ptqwatch::internal {

/// Measures the average of the last snapshots: its full-precision loss, and the loss added by
/// AveragedQuantizers. Averages floating-point parameters and uses the buffers of the newest
/// snapshot. The result depends on all snapshots in the window, and the report gives their number
/// and first step. Unlike for other probes, the newest snapshot alone does not determine it, and a
/// resumed run starts with an empty window.
class AveragingProbe final : public Probe {
 public:
  static constexpr std::string_view kName = "averaging";

  /// `session` and `recent` must outlive the probe.
  AveragingProbe(ModelSession& session, const AveragingOptions& options,
                 const QuantizationOptions& quantization, const RecentWeights& recent);

  ProbeNeeds Needs(int64_t available) const override;
  ProbeResult Measure(const ProbeInput& input, const ExecutionContext& context) override;
  ProbeResult NotMeasured(ProbeStatus status, std::string detail) const override;

 private:
  AveragingReport WindowReport() const;
  AveragingReport ExponentialReport() const;
  // Notes in the reports that the window is short for lack of memory.
  void NoteShortage(std::vector<AveragingReport>& averages) const;

  const AveragingOptions options_;
  const AverageMeasurement measurement_;
  const RecentWeights& recent_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_AVERAGING_PROBE_H_
