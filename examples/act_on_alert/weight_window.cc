#include "weight_window.h"

#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/zeros_like.h"

namespace ptqwatch::examples {

void WeightWindow::Add() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> copy;
  for (const at::Tensor& parameter : parameters_) copy.push_back(parameter.detach().clone());
  copies_.push_back(std::move(copy));
  if (copies_.size() > size_) copies_.pop_front();
}

void WeightWindow::LoadMean() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor sum = at::zeros_like(parameters_[i], at::kDouble);
    for (const std::vector<at::Tensor>& copy : copies_) sum += copy[i];
    parameters_[i].copy_(sum / static_cast<double>(copies_.size()));
  }
}

}  // namespace ptqwatch::examples
