#include "session/trained_parameters.h"

#include <algorithm>
#include <cstddef>

namespace ptqwatch::internal {

std::vector<int> TrainedParameters(const ModelSession& session) {
  const std::vector<TensorEntry>& live = session.live().entries;
  // Tensors that wrap a trainer's own memory never require gradients although they are trained.
  const bool knows_frozen = std::any_of(live.begin(), live.end(), [](const TensorEntry& entry) {
    return entry.tensor.requires_grad();
  });
  std::vector<int> trained = FloatingParameters(session.replica().table());
  std::erase_if(trained, [&](int entry) {
    return knows_frozen && !live[static_cast<size_t>(entry)].tensor.requires_grad();
  });
  return trained;
}

}  // namespace ptqwatch::internal
