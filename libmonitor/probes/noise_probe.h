#ifndef PTQWATCH_PROBES_NOISE_PROBE_H_
#define PTQWATCH_PROBES_NOISE_PROBE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "capture/expert_routing.h"
#include "probes/probe.h"
#include "session/model_session.h"
#include "snapshot/unit_losses.h"

namespace ptqwatch::internal {

/// Measures the loss under Gaussian noise in the quantized weights, on the batches on which the
/// quantization probe compared the FinestQuantizer. Takes forward passes alone, about as many as
/// that one, and memory for one layer.
class NoiseProbe final : public Probe {
 public:
  static constexpr std::string_view kName = "noise";

  /// Times a forward pass and a draw. `relative_norm` is positive; draws come from `seed`. The
  /// session must have probe batches and a plan, and must outlive the probe. FailedPrecondition if
  /// the losses closure does not fit.
  static absl::StatusOr<std::unique_ptr<NoiseProbe>> Create(ModelSession& session,
                                                            double relative_norm, uint64_t seed);

  ProbeNeeds Needs(int64_t available) const override;
  ProbeResult Measure(const ProbeInput& input, const ExecutionContext& context) override;
  ProbeResult NotMeasured(ProbeStatus status, std::string detail) const override;

 private:
  NoiseProbe(ModelSession& session, double relative_norm, uint64_t seed)
      : Probe({.name = kName, .uses = {"quantization"}}),
        session_(session),
        relative_norm_(relative_norm),
        seed_(seed) {}
  absl::Status TimeOnce();
  // The losses of all evaluations of the batches' NoisePlan. Adds what changes of `routings`, which
  // are those of the batches without noise, or none.
  absl::StatusOr<std::vector<UnitLosses>> NoisyLosses(size_t batches,
                                                      absl::Span<const ExpertRouting> routings,
                                                      RoutingChange& change,
                                                      const ProbeInput& input,
                                                      const ExecutionContext& context);
  int64_t LargestLayer() const;

  ModelSession& session_;
  const double relative_norm_;
  const uint64_t seed_;
  double batch_seconds_ = 0;
  double draw_seconds_ = 0;  // of all layers
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_NOISE_PROBE_H_
