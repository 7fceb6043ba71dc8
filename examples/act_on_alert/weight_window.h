#ifndef PTQWATCH_ACT_ON_ALERT_WEIGHT_WINDOW_H_
#define PTQWATCH_ACT_ON_ALERT_WEIGHT_WINDOW_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "ATen/core/Tensor.h"
#include "torch/nn/module.h"

namespace ptqwatch::examples {

/// The last copies of a model's weights, and their mean (LAWA, arXiv 2209.14981).
class WeightWindow {
 public:
  /// `model` must outlive this object.
  WeightWindow(torch::nn::Module& model, int64_t size)
      : parameters_(model.parameters()), size_(static_cast<size_t>(size)) {}

  /// Copies the current weights. If the window is full, the copy replaces the oldest one.
  void Add();
  /// Gives the model the mean of the copies. REQUIRES: copies() > 0.
  void LoadMean();
  int64_t copies() const { return std::ssize(copies_); }

 private:
  const std::vector<at::Tensor> parameters_;
  const size_t size_;
  std::deque<std::vector<at::Tensor>> copies_;
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_ACT_ON_ALERT_WEIGHT_WINDOW_H_
