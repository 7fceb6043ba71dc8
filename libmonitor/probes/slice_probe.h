#ifndef PTQWATCH_PROBES_SLICE_PROBE_H_
#define PTQWATCH_PROBES_SLICE_PROBE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/reservation.h"
#include "probes/probe.h"
#include "probes/slice_tracker.h"
#include "ptqwatch/options.h"
#include "session/model_session.h"

namespace ptqwatch::internal {

/// Makes the slices that are requested: keeps the weights of one snapshot, and at the next one
/// measures the loss over the plane through both and the quantized weights. The space is that of
/// all floating-point parameters (buffers stay those of the second snapshot), the data the
/// curvature batches. Runs once the report is out, and writes <run_dir>/slice-<step>.json.
class SliceProbe final : public Probe {
 public:
  static constexpr std::string_view kName = "slice";

  /// Opens the tracker, or closes it with the reason why this monitor makes no slices. `session`
  /// and `tracker` must outlive the probe.
  SliceProbe(ModelSession& session, const MonitorOptions& options, SliceTracker* tracker);

  std::string_view name() const override { return kName; }
  std::vector<std::string_view> needs() const override { return {"quantization"}; }
  bool uses_quantized_weights() const override { return true; }
  bool after_report() const override { return true; }
  bool Due(const std::optional<Plan>& /*plan*/) const override {
    return tracker_->status().under_way();
  }
  ProbeDescription Describe(int64_t /*available*/) const override { return {}; }
  /// The tracker learns how the slice goes. Moves the quantized weights out of the earlier results.
  ProbeResult Measure(const ProbeInput& input, const ExecutionContext& context) override;
  ProbeResult NotMeasured(ProbeStatus status, std::string detail) const override;
  /// Closes the tracker.
  void Disable(std::string reason) override;

 private:
  absl::Status KeepWeights(int64_t step, const ExecutionContext& context);
  void Forget();
  ProbeResult Made(const absl::StatusOr<std::string>& path, const std::string& quantizer,
                   const ProbeInput& input);
  absl::StatusOr<std::string> Make(const ProbeInput& input, QuantizationResult& quantization,
                                   const ExecutionContext& context);

  ModelSession& session_;
  SliceTracker* const tracker_;
  const std::string run_dir_;
  std::vector<Replica::Override> previous_;
  std::optional<Reservation> held_;  // the memory of previous_
  int64_t previous_step_ = 0;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_SLICE_PROBE_H_
