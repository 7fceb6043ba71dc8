#ifndef PTQWATCH_PROBES_AVERAGING_PROBE_H_
#define PTQWATCH_PROBES_AVERAGING_PROBE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "probes/probe.h"
#include "probes/quantization_measurement.h"
#include "probes/weight_window.h"
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

  /// `others` are the descriptions of the other probes, whose memory comes first. `curvature` sets
  /// the rhythm; null: every snapshot is measured. Both must outlive the probe, like the session.
  AveragingProbe(ModelSession& session, const MonitorOptions& options, const Probe* curvature,
                 absl::Span<const ProbeDescription> others);

  std::string_view name() const override { return kName; }
  std::vector<std::string_view> needs() const override { return {"quantization"}; }
  bool Due(const std::optional<Plan>& plan) const override {
    return !plan || plan->curvature_sequences > 0 || curvature_ == nullptr ||
           !curvature_->disabled().empty();
  }
  ProbeDescription Describe(int64_t available) const override;
  /// Costs a copy of the parameters.
  bool Collect(const SnapshotPlace& place, const ExecutionContext& context) override;
  ProbeResult Measure(const ProbeInput& input, const ExecutionContext& context) override;
  ProbeResult NotMeasured(ProbeStatus status, std::string detail) const override;
  /// Gives its memory back.
  void Disable(std::string reason) override;

 private:
  // Snapshots of the window that fit where so many bytes remain beside those that it has.
  size_t Fitting(int64_t remaining, size_t held) const;
  absl::Status Take(const SnapshotPlace& place, const ExecutionContext& context);
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
  const Probe* const curvature_;
  const QuantizationMeasurement measurement_;  // of the watched quantizer
  const std::vector<int> entries_;             // that are averaged
  int64_t mean_bytes_ = 0;                     // of making an average
  int64_t kept_bytes_ = 0;                     // by the other probes, while it measures
  int64_t needed_bytes_ = 0;                   // of all measuring, beside the window
  int64_t seen_ = 0;                           // regular snapshots
  size_t fitting_;                             // at the last snapshot
  absl::Status problem_;                       // why the last snapshot was not taken
  WeightWindow window_;
  std::optional<ExponentialWeights> exponential_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_AVERAGING_PROBE_H_
