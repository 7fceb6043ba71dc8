#ifndef PTQWATCH_PROBES_LOSS_COMPARISON_H_
#define PTQWATCH_PROBES_LOSS_COMPARISON_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "probes/probe_result.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"
#include "session/model_session.h"
#include "snapshot/replica.h"
#include "snapshot/unit_losses.h"

namespace ptqwatch::internal {

/// When a comparison has seen enough, as in MonitorOptions.
struct ComparisonOptions {
  double relative_stderr = 0;
  double absolute_stderr_ratio = 0;
  int64_t max_probe_tokens = 0;
};
ComparisonOptions ComparisonOptionsOf(const MonitorOptions& options);

/// The loss of the loaded weights on the probe batches, and that of quantized ones on the same
/// tokens. Batches are evaluated as they are first needed, and once for the loaded weights. One
/// thread.
class LossComparison {
 public:
  /// A standard error from fewer units than this is not trusted to end a comparison.
  static constexpr size_t kMinUnits = 16;

  /// Takes at most `max_batches` of the session's probe batches; all where that is 0. The session
  /// must outlive it. `evaluated`: the loaded weights' losses on the first of them, where known.
  LossComparison(ModelSession& session, const ComparisonOptions& options, int64_t max_batches,
                 std::vector<UnitLosses> evaluated = {});

  /// Evaluates the loaded weights on the first `batches` batches. DataLoss where that is not
  /// finite.
  absl::Status Evaluate(size_t batches);

  /// Compares, and fills the losses of `report` in, and where the closure says which examples are
  /// right, the accuracies: batch by batch, until the standard error of the
  /// change is small enough (ComparisonOptions) or batches or
  /// tokens are used up.
  absl::Status Compare(const std::vector<Replica::Override>& weights, QuantizationReport& report,
                       const ExecutionContext& context);

  /// The loss of the loaded weights on all batches that were needed, and their accuracy.
  void SumUp(QuantizationResult& result) const;

 private:
  ModelSession& session_;
  const ComparisonOptions options_;
  const size_t max_batches_;
  std::vector<UnitLosses> full_;  // of the loaded weights, by batch
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_LOSS_COMPARISON_H_
