#ifndef PTQWATCH_TESTS_SUPPORT_TENSOR_SURFACE_H_
#define PTQWATCH_TESTS_SUPPORT_TENSOR_SURFACE_H_

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "curvature/loss_surface.h"

namespace ptqwatch::testing {

/// The loss surface of a function of plain tensors. The function is called once per batch with its
/// index, and returns the batch's contribution to the mean loss.
class TensorSurface final : public internal::LossSurface {
 public:
  using Parameters = std::vector<std::pair<std::string, at::Tensor>>;
  using Function = std::function<at::Tensor(size_t batch)>;

  TensorSurface(Parameters parameters, Function function, size_t batches = 1)
      : parameters_(std::move(parameters)),
        function_(std::move(function)),
        batches_(batches),
        space_(parameters_, parameters_[0].second.scalar_type(), at::kCPU) {
    at::NoGradGuard no_grad;
    for (size_t part = 0; part < parameters_.size(); ++part) {
      home_.push_back(parameters_[part].second.detach().clone());
      leaves_.push_back({parameters_[part].second.requires_grad_(true), part});
    }
  }

  const internal::VectorSpace& space() const override { return space_; }
  const std::vector<Leaf>& leaves() const override { return leaves_; }
  size_t batches() const override { return batches_; }
  absl::StatusOr<at::Tensor> Loss(size_t index, bool with_graph) override {
    at::AutoGradMode mode(with_graph);
    return function_(index);
  }
  /// The function for LossWithLogits; if null, there are no logits.
  using WithLogits = std::function<LossAndLogits(size_t batch)>;
  void set_logits(WithLogits with_logits) { with_logits_ = std::move(with_logits); }
  absl::StatusOr<LossAndLogits> LossWithLogits(size_t index) override {
    if (!with_logits_) return LossSurface::LossWithLogits(index);
    at::AutoGradMode mode(true);
    return with_logits_(index);
  }
  absl::Status MoveTo(const internal::Vector* direction, double scale) override {
    at::NoGradGuard no_grad;
    ++generation_;
    for (size_t part = 0; part < parameters_.size(); ++part) {
      // variable_data() has its own version counter, like the views of a flat buffer.
      at::Tensor to = parameters_[part].second.variable_data();
      to.copy_(home_[part]);
      if (direction != nullptr) to.add_(space_.View(*direction, part), scale);
    }
    return absl::OkStatus();
  }
  uint64_t generation() const override { return generation_; }
  double WeightNorm() const override {
    double sum = 0;
    for (const at::Tensor& tensor : home_) sum += tensor.square().sum().item<double>();
    return std::sqrt(sum);
  }

 private:
  Parameters parameters_;
  Function function_;
  WithLogits with_logits_;
  size_t batches_;
  internal::VectorSpace space_;
  std::vector<at::Tensor> home_;
  std::vector<Leaf> leaves_;
  uint64_t generation_ = 0;
};

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_TENSOR_SURFACE_H_
