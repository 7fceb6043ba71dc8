#ifndef PTQWATCH_FUNCTIONAL_ADAMW_H_
#define PTQWATCH_FUNCTIONAL_ADAMW_H_

#include <cstdint>
#include <span>
#include <vector>

#include "net.h"

namespace ptqwatch::examples {

/// AdamW (arXiv 1711.05101) with betas 0.9 and 0.95, for all weights of a net.
class AdamW {
 public:
  static constexpr float kBeta1 = 0.9f;
  static constexpr float kBeta2 = 0.95f;
  static constexpr float kEpsilon = 1e-8f;

  /// `weights` must outlive the optimizer and keep their number and sizes.
  AdamW(std::vector<Weight>* weights, double weight_decay);

  /// Updates the weights in place from their gradients.
  void Step(double learning_rate);

  /// The rate at the last step; 0 before the first.
  double learning_rate() const { return learning_rate_; }
  double weight_decay() const { return weight_decay_; }
  int64_t steps() const { return steps_; }
  /// Running mean of the squared gradients of weight `index`, without bias correction.
  std::span<float> second_moment(size_t index) { return moments_[index].second; }

 private:
  struct Moments {
    std::vector<float> first;
    std::vector<float> second;
  };

  std::vector<Weight>* weights_;
  std::vector<Moments> moments_;
  double weight_decay_;
  double learning_rate_ = 0;
  int64_t steps_ = 0;
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_FUNCTIONAL_ADAMW_H_
