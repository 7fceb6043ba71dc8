#include "ptqwatch/subject.h"

#include <stdexcept>

namespace ptqwatch {

std::optional<c10::Stream> Subject::UpdateStream() const { return std::nullopt; }

std::optional<OptimizerView> Subject::Optimizer() const { return std::nullopt; }

bool Subject::CanTrainReplica() const { return false; }

void Subject::TrainReplica(const CooldownStep& /*step*/) {
  throw std::logic_error("this subject cannot train its replica");
}

const std::vector<Batch>& Subject::curvature() const {
  static const std::vector<Batch>* const none = new std::vector<Batch>;
  return *none;
}

}  // namespace ptqwatch
