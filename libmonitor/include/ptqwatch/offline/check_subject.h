#ifndef PTQWATCH_OFFLINE_CHECK_SUBJECT_H_
#define PTQWATCH_OFFLINE_CHECK_SUBJECT_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/subject.h"

namespace ptqwatch {

/// What a subject says of one batch.
struct SubjectLoss {
  double loss_nats = 0;                  ///< weighted mean over the tokens
  std::optional<double> stderr_nats;     ///< absent with fewer than two units
  int64_t units = 0;                     ///< sequences; 1 where the closure returns one mean
  int64_t tokens = 0;                    ///< positions whose weight is not 0
  std::optional<double> accuracy_ratio;  ///< where the closure gives LossValues::correct
};

/// Evaluates the losses closure on a copy of the live weights, in evaluation mode: to hold it
/// against the loss that the trainer itself computes of this batch. Makes all the checks of the
/// closure that Monitor::Create makes. The subject stays good for a monitor, whose replica is then
/// the one that was built here and is held until that. Call it on the trainer's thread between
/// steps. Costs at most eight evaluations of the batch and two copies of the model.
///
/// FailedPrecondition saying what does not hold, or what the closure threw; ResourceExhausted if
/// memory runs out.
PTQWATCH_EXPORT absl::StatusOr<SubjectLoss> CheckSubject(Subject& subject, const Batch& batch);

}  // namespace ptqwatch

#endif  // PTQWATCH_OFFLINE_CHECK_SUBJECT_H_
