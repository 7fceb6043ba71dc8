#ifndef PTQWATCH_PROBES_CURVATURE_PROBE_H_
#define PTQWATCH_PROBES_CURVATURE_PROBE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "curvature/vector_space.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"
#include "ptqwatch/report.h"
#include "quantize/capture_plan.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

class HessianOperator;
class ReplicaSurface;

/// Sequences of the probe batches that curvature is measured on where the subject names none.
inline constexpr int64_t kDefaultCurvatureSequences = 64;

/// The first `sequences` sequences of `batches`: whole batches, the last one cut along dimension 0
/// where all its tensors and its losses have one row a sequence (else it is taken whole).
std::vector<Batch> FirstSequences(Replica& replica, const std::vector<Batch>& batches,
                                  int64_t sequences);

/// Measures the Hessian of the loss at the loaded snapshot, always on the same batches: top
/// eigenvalue, trace, and the second-order prediction of every quantizer's loss change.
class CurvatureProbe {
 public:
  /// Evaluates the batches once and finds out how products with the Hessian can be made. Where no
  /// way works (or the batches cannot be used), with CurvatureOptions::mode kAuto the probe is made
  /// all the same and says why in every report; with a mode that was asked for that is an error.
  static absl::StatusOr<std::unique_ptr<CurvatureProbe>> Create(Replica& replica,
                                                                const CapturePlan& plan,
                                                                std::vector<Batch> batches,
                                                                const MonitorOptions& options);

  /// Fills `report.curvature`, and the prediction of each entry of `report.quantization` that has
  /// weights in `quantized` (one list an entry, empty where there are none). `start` is the top
  /// eigenvector of the snapshot before, or undefined; `eigenvector` receives this one's. A
  /// quantizer whose loss is not finite gets no prediction. With CurvatureOptions::mode kAuto,
  /// where memory runs out it is measured again in the next smaller mode, from then on. Every
  /// failure becomes a status in the report. Returns Cancelled when the context was, else ok.
  absl::Status Run(ExecutionContext& context, Replica& replica,
                   const std::vector<std::vector<Replica::Override>>& quantized,
                   const Vector& start, Report& report, Vector& eigenvector);

  /// Every later report says that the probe is switched off, and why.
  void Disable(std::string reason) { unavailable_ = std::move(reason); }

  const std::vector<Batch>& batches() const { return batches_; }
  /// One line for Monitor::Describe.
  std::string Describe() const;
  /// Why nothing is measured; empty where it is.
  const std::string& unavailable() const { return unavailable_; }

 private:
  explicit CurvatureProbe(const CurvatureOptions& options) : options_(options) {}
  absl::Status Measure(ExecutionContext& context, Replica& replica,
                       const std::vector<std::vector<Replica::Override>>& quantized,
                       const Vector& start, Report& report, CurvatureReport& curvature,
                       Vector& eigenvector);
  absl::Status MeasureSpectrum(ExecutionContext& context, Replica& replica,
                               HessianOperator& hessian, const Vector& start, Report& report,
                               CurvatureReport& curvature, Vector& eigenvector);

  CurvatureOptions options_;
  HessianMode mode_ = HessianMode::kAuto;
  std::optional<int64_t> graph_bytes_;  // of all batches, estimated
  std::vector<int> scope_;              // entries of the replica's table
  int64_t parameters_ = 0;
  std::vector<Batch> batches_;
  double total_weight_ = 0;
  int64_t tokens_ = 0;
  std::string unavailable_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_CURVATURE_PROBE_H_
