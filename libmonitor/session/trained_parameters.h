#ifndef PTQWATCH_SESSION_TRAINED_PARAMETERS_H_
#define PTQWATCH_SESSION_TRAINED_PARAMETERS_H_

#include <vector>

#include "session/model_session.h"

namespace ptqwatch::internal {

/// Entries of the replica's table that training changes: the floating-point parameters, except
/// those whose requires_grad is off in the live model while it is on for others. The session must
/// still have its live tensors.
std::vector<int> TrainedParameters(const ModelSession& session);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SESSION_TRAINED_PARAMETERS_H_
