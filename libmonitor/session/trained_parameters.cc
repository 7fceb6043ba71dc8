#include "session/trained_parameters.h"

#include <algorithm>
#include <cstddef>

namespace ptqwatch::internal {

std::vector<int> TrainedParameters(const ModelSession& session) {
  const std::vector<TensorEntry>& live = session.live().entries;
  const std::vector<TensorEntry>& table = session.replica().table().entries;
  // Tensors that wrap a trainer's own memory never require gradients, even if they are trained.
  const bool knows_frozen = std::any_of(live.begin(), live.end(), [](const TensorEntry& entry) {
    return entry.tensor.requires_grad();
  });
  std::vector<int> trained;
  for (size_t i = 0; i < table.size(); ++i) {
    if (!table[i].is_parameter || !at::isFloatingType(table[i].tensor.scalar_type())) continue;
    if (!knows_frozen || live[i].tensor.requires_grad()) trained.push_back(static_cast<int>(i));
  }
  return trained;
}

}  // namespace ptqwatch::internal
