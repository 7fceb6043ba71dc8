#include "ptqwatch/subject.h"

#include <stdexcept>

#include "base/strings.h"

namespace ptqwatch {
namespace {

void CheckIndex(size_t index, size_t tensors) {
  if (index < tensors) return;
  throw std::out_of_range(internal::StrCat("the batch has ", tensors,
                                           tensors == 1 ? " tensor" : " tensors", ", so batch[",
                                           index, "] does not exist"));
}

}  // namespace

const at::Tensor& Batch::operator[](size_t index) const {
  CheckIndex(index, size());
  return vector::operator[](index);
}

at::Tensor& Batch::operator[](size_t index) {
  CheckIndex(index, size());
  return vector::operator[](index);
}

std::optional<c10::Stream> Subject::UpdateStream() const { return std::nullopt; }

std::optional<OptimizerView> Subject::Optimizer() const { return std::nullopt; }

std::string Subject::ReplicaInTraining() const { return {}; }

bool Subject::CanTrainReplica() const { return false; }

void Subject::TrainReplica(const CooldownStep& /*step*/) {
  throw std::logic_error("this subject cannot train its replica");
}

const std::vector<Batch>& Subject::curvature() const {
  static const std::vector<Batch>* const none = new std::vector<Batch>;
  return *none;
}

}  // namespace ptqwatch
