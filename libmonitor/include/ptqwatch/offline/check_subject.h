#ifndef PTQWATCH_OFFLINE_CHECK_SUBJECT_H_
#define PTQWATCH_OFFLINE_CHECK_SUBJECT_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/subject.h"

namespace ptqwatch {

/// A subject's results for one batch.
struct SubjectLoss {
  double loss_nats = 0;                  ///< weighted mean over the tokens
  std::optional<double> stderr_nats;     ///< absent with fewer than two units
  int64_t units = 0;                     ///< sequences; 1 if the closure returns one mean
  int64_t tokens = 0;                    ///< positions whose weight is not 0
  std::optional<double> accuracy_ratio;  ///< if the closure gives LossValues::correct
};

/// Evaluates the losses closure on a copy of the live weights, in evaluation mode, for comparison
/// with the loss that the trainer itself computes for this batch. Makes the checks of the closure
/// that Monitor::Create makes on one batch, except those of gradients. The subject can still be
/// given to a monitor, which then uses the replica built here; it is held until then. Call it on
/// the trainer's thread between steps. Costs at most eight evaluations of the batch and two copies
/// of the model.
///
/// FailedPrecondition naming the failed check or the closure's exception; ResourceExhausted if
/// memory runs out.
PTQWATCH_EXPORT absl::StatusOr<SubjectLoss> CheckSubject(Subject& subject, const Batch& batch);

}  // namespace ptqwatch

#endif  // PTQWATCH_OFFLINE_CHECK_SUBJECT_H_
