#ifndef PTQWATCH_PROBES_CURVATURE_PROBE_H_
#define PTQWATCH_PROBES_CURVATURE_PROBE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/reservation.h"
#include "probes/probe.h"
#include "probes/work_share.h"
#include "ptqwatch/options.h"
#include "session/curvature_setup.h"
#include "session/model_session.h"

namespace ptqwatch::internal {

/// Measures the Hessian of the loss, always on the same batches: the ends of its spectrum, and this
/// rank's share of the other parts, which are the distance to the edge of stability, the trace, and
/// the loss along the quantizers' errors. With mode kAuto, if memory runs out, repeats the snapshot
/// in the next smaller mode, and finally without the quantized weights.
class CurvatureProbe final : public Probe {
 public:
  static constexpr std::string_view kName = "curvature";

  /// Finds out on one sequence how to compute products with the Hessian. The session must have
  /// curvature batches and a plan, and must outlive the probe. If no mode works, the batches cannot
  /// be used, or the context's bytes do not suffice, mode kAuto gives a disabled probe and an
  /// explicit mode gives FailedPrecondition. The default `share` is that of a trainer alone.
  static absl::StatusOr<std::unique_ptr<CurvatureProbe>> Create(
      ModelSession& session, const CurvatureOptions& options,
      const CurvatureEngineOptions& engine = {}, const ExecutionContext& context = {},
      WorkShare share = {});

  ProbeNeeds Needs(int64_t available) const override;
  ProbeResult Measure(const ProbeInput& input, const ExecutionContext& context) override;
  ProbeResult NotMeasured(ProbeStatus status, std::string detail) const override;

  /// Entries of the replica's table that the Hessian is taken with respect to.
  const std::vector<int>& scope() const { return target_.scope; }
  /// Sequences of the session's curvature batches.
  int64_t sequences() const { return sequences_; }

 private:
  class Attempt;
  absl::Status Try(const ExecutionContext& context);
  absl::Status TimeGradients(const ExecutionContext& context);
  // Bytes of one vector.
  int64_t VectorBytes() const;
  // Vectors that one snapshot passes to the next, and that are held beside search and trace.
  int64_t KeptVectors() const;
  int64_t HeldVectors() const;
  bool OwnsErrors() const { return share_.ranks == 1 || share_.OwnQuantizers() > 0; }
  // Gradients in the time of a measurement, about.
  double GradientsAMeasurement() const;
  // A report without numbers, that names the ranks of the other parts.
  CurvatureReport Header() const;
  // Bytes of the graph of `sequences` sequences.
  int64_t GraphBytes(int64_t sequences) const;
  ProbeResult MeasureInModes(const ProbeInput& input, const ExecutionContext& context);
  // Makes setup_ one for the first `sequences` sequences.
  absl::Status SetUp(int64_t sequences, const ExecutionContext& context);
  CurvatureProbe(ModelSession& session, CurvatureTarget target, const CurvatureOptions& options,
                 const CurvatureEngineOptions& engine, WorkShare share)
      : Probe({.name = kName,
               .uses = {"quantization"},
               .uses_quantized_weights = true,
               .with_curvature = true}),
        session_(session),
        options_(options),
        engine_(engine),
        share_(std::move(share)),
        target_(std::move(target)) {}

  ModelSession& session_;
  const CurvatureOptions options_;
  const CurvatureEngineOptions engine_;
  const WorkShare share_;
  const CurvatureTarget target_;
  std::unique_ptr<Reservation> held_;  // the vectors that one snapshot passes to the next
  int64_t sequences_ = 0;
  // Seconds of a measurement, estimated from gradients timed in Create.
  double fixed_seconds_ = 0;
  double sequence_seconds_ = 0;
  // Unless the probe is disabled: the setup tried on one sequence, and the setup to measure with.
  CurvatureSetup trial_;
  CurvatureSetup setup_;
  int64_t set_up_for_ = 0;
  bool short_of_memory_ = false;  // why the probe is off
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_CURVATURE_PROBE_H_
