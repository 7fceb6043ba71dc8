#include "ptqwatch/offline/check_subject.h"

#include <cmath>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "probes/paired_loss.h"
#include "session/batch_checks.h"
#include "snapshot/batches.h"
#include "snapshot/generator_guard.h"
#include "snapshot/own_draws.h"
#include "snapshot/replica.h"
#include "snapshot/tensor_table.h"
#include "snapshot/unit_losses.h"

namespace ptqwatch {
namespace {

using internal::Replica;

SubjectLoss Summarise(const internal::UnitLosses& losses) {
  SubjectLoss result;
  const internal::RatioEstimate mean = internal::EstimateRatio(losses.sum, losses.weight);
  result.loss_nats = mean.value;
  if (std::isfinite(mean.stderr_value)) result.stderr_nats = mean.stderr_value;
  result.units = std::ssize(losses.sum);
  result.tokens = losses.tokens;
  const double examples = std::accumulate(losses.examples.begin(), losses.examples.end(), 0.0);
  if (examples > 0) {
    result.accuracy_ratio =
        std::accumulate(losses.correct.begin(), losses.correct.end(), 0.0) / examples;
  }
  return result;
}

absl::StatusOr<SubjectLoss> CheckOrThrow(Subject& subject, const Batch& batch) {
  at::NoGradGuard no_grad;
  PTQWATCH_RETURN_IF_ERROR(internal::OwnDraws::Available());
  const internal::GeneratorGuard generators;
  PTQWATCH_ASSIGN_OR_RETURN(const internal::TensorTable live,
                            internal::MakeTensorTable(subject.LiveTensors()));
  PTQWATCH_ASSIGN_OR_RETURN(
      const std::vector<Batch> batches,
      internal::CopyBatches({batch}, live.entries[0].tensor.device(), "checked"));
  PTQWATCH_ASSIGN_OR_RETURN(const std::unique_ptr<Replica> replica,
                            Replica::Create(&subject, live, {&batches[0]}));
  PTQWATCH_RETURN_IF_ERROR(internal::CheckIsNoSum(*replica, batches[0]));
  PTQWATCH_ASSIGN_OR_RETURN(const LossValues values, replica->Losses(batches[0]));
  PTQWATCH_ASSIGN_OR_RETURN(const internal::UnitLosses losses,
                            internal::SumByUnit(values, batches[0]));
  return Summarise(losses);
}

}  // namespace

absl::StatusOr<SubjectLoss> CheckSubject(Subject& subject, const Batch& batch) {
  return internal::Guard([&] { return CheckOrThrow(subject, batch); });
}

}  // namespace ptqwatch
