#ifndef PTQWATCH_PROBES_AVERAGING_PROBE_H_
#define PTQWATCH_PROBES_AVERAGING_PROBE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "probes/probe.h"
#include "probes/quantization_measurement.h"
#include "probes/recent_weights.h"
#include "ptqwatch/options.h"
#include "session/model_session.h"

namespace ptqwatch::internal {

/// Measures what the average of the last snapshots would give: its full-precision loss and what
/// the watched quantizer costs it, with the buffers of the newest snapshot. Floating-point
/// parameters are averaged. Its numbers are a function of the snapshots in the window, which the
/// report names by their number and first step: unlike those of other probes they do not follow
/// from the newest snapshot alone, and a resumed run starts with an empty window.
class AveragingProbe final : public Probe {
 public:
  static constexpr std::string_view kName = "averaging";

  /// `quantization` has the watched quantizer among others. `session` and `recent` must outlive the
  /// probe.
  AveragingProbe(ModelSession& session, const AveragingOptions& options,
                 const QuantizationOptions& quantization, const RecentWeights& recent);

  ProbeNeeds Needs(int64_t available) const override;
  ProbeResult Measure(const ProbeInput& input, const ExecutionContext& context) override;
  ProbeResult NotMeasured(ProbeStatus status, std::string detail) const override;

 private:
  AveragingReport WindowReport() const;
  AveragingReport ExponentialReport() const;
  // Says that the window is short for lack of memory.
  void NoteShortage(std::vector<AveragingReport>& averages) const;
  // Fills the losses of the average in.
  absl::Status MeasureAverage(absl::FunctionRef<std::vector<Replica::Override>()> average,
                              const ProbeInput& input, AveragingReport& report,
                              const ExecutionContext& context) const;

  ModelSession& session_;
  const AveragingOptions options_;
  const QuantizationMeasurement measurement_;  // of the watched quantizer
  const RecentWeights& recent_;
  int64_t mean_bytes_ = 0;  // of making an average
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_AVERAGING_PROBE_H_
