#ifndef PTQWATCH_PROBES_LOSS_COMPARISON_H_
#define PTQWATCH_PROBES_LOSS_COMPARISON_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "capture/expert_routing.h"
#include "probes/loss_pairs.h"
#include "probes/probe_result.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"
#include "session/model_session.h"
#include "snapshot/replica.h"
#include "snapshot/unit_losses.h"

namespace ptqwatch::internal {

/// When a comparison is precise enough, as in MonitorOptions.
struct ComparisonOptions {
  double relative_stderr = 0;
  double absolute_stderr_ratio = 0;
  int64_t max_probe_tokens = 0;
};
ComparisonOptions ComparisonOptionsOf(const MonitorOptions& options);
/// A comparison that never ends early, so that every snapshot is compared on the same tokens.
ComparisonOptions OnAllBatches(ComparisonOptions options);

/// Compares the loss of the loaded weights on probe batches with that of quantized weights on the
/// same tokens, and the experts that both take. Evaluates batches when first needed, and only once
/// for the loaded weights. Not thread-safe.
class LossComparison {
 public:
  /// Fewer units do not give a standard error reliable enough to end a comparison.
  static constexpr size_t kMinUnits = 16;

  /// Takes at most `max_batches` of the session's probe batches; 0: all. The session must outlive
  /// it. `evaluated`: the loaded weights' losses on the first batches, if known.
  LossComparison(ModelSession& session, const ComparisonOptions& options, int64_t max_batches,
                 std::vector<UnitLosses> evaluated = {})
      : LossComparison(session, session.probe(), options, max_batches, std::move(evaluated)) {}
  /// The same with other batches, which must outlive it.
  LossComparison(ModelSession& session, const std::vector<Batch>& batches,
                 const ComparisonOptions& options, int64_t max_batches,
                 std::vector<UnitLosses> evaluated = {});

  /// Evaluates the loaded weights on the first `batches` batches. DataLoss if the loss is not
  /// finite.
  absl::Status Evaluate(size_t batches);

  /// Compares batch by batch, until the standard error of the change is small enough
  /// (ComparisonOptions) or the batches or tokens are used up. Fills in the losses of `report`, the
  /// change of routing, and the accuracies if the closure says which examples are correct.
  /// `exactly`: the number of batches to take, if there are as many, however precise; 0: until
  /// precise.
  absl::Status Compare(const std::vector<Replica::Override>& weights, QuantizationReport& report,
                       const ExecutionContext& context, size_t exactly = 0);

  /// The quantized losses of the newest comparison, by batch.
  std::vector<UnitLosses> TakeQuantized() { return std::move(quantized_); }
  /// The losses of the newest comparison.
  const LossPairs& pairs() const { return pairs_; }
  /// Where the loaded weights sent the tokens of the batches evaluated, if the plan is of a mixture
  /// of experts and their losses were not given to the constructor.
  const std::vector<ExpertRouting>& routings() const { return routings_; }

  /// Fills in the loss and the accuracy of the loaded weights, over all batches that were needed.
  void SumUp(QuantizationResult& result) const;

 private:
  ModelSession& session_;
  const std::vector<Batch>& batches_;
  const ComparisonOptions options_;
  const size_t max_batches_;
  const bool routed_;
  std::vector<UnitLosses> full_;  // of the loaded weights, by batch
  std::vector<ExpertRouting> routings_;
  std::vector<UnitLosses> quantized_;
  LossPairs pairs_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_PROBES_LOSS_COMPARISON_H_
