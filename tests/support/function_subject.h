#ifndef PTQWATCH_TESTS_SUPPORT_FUNCTION_SUBJECT_H_
#define PTQWATCH_TESTS_SUPPORT_FUNCTION_SUBJECT_H_

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/clone.h"
#include "ptqwatch/subject.h"

namespace ptqwatch::testing {

using TensorMap = std::map<std::string, at::Tensor>;

/// A subject of named tensors and a function of them; ties are kept in the replica.
class FunctionSubject final : public Subject {
 public:
  using Losses = std::function<LossValues(const TensorMap&, const Batch&)>;
  FunctionSubject(std::vector<NamedTensor> live, Losses losses, std::vector<Batch> batches)
      : live_(std::move(live)), losses_(std::move(losses)), batches_(std::move(batches)) {}

  std::vector<NamedTensor> LiveTensors() const override { return live_; }
  absl::Status BuildReplica() override {
    std::map<const void*, at::Tensor> copies;
    for (const NamedTensor& named : live_) {
      at::Tensor& copy = copies[named.tensor.const_data_ptr()];
      if (!copy.defined()) copy = named.tensor.detach().clone();
      replica_.push_back({named.name, copy, named.is_parameter});
    }
    return absl::OkStatus();
  }
  std::vector<NamedTensor> ReplicaTensors() const override { return replica_; }
  LossValues ReplicaLosses(const Batch& batch) override {
    TensorMap tensors;
    for (const NamedTensor& named : replica_) tensors[named.name] = named.tensor;
    return losses_(tensors, batch);
  }
  const std::vector<Batch>& probe() const override { return batches_; }
  const std::vector<Batch>& calibration() const override { return batches_; }

 private:
  std::vector<NamedTensor> live_;
  std::vector<NamedTensor> replica_;
  Losses losses_;
  std::vector<Batch> batches_;
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_FUNCTION_SUBJECT_H_
