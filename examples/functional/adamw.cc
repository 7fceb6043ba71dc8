#include "adamw.h"

#include <cmath>

namespace ptqwatch::examples {

AdamW::AdamW(std::vector<Weight>* weights, double weight_decay)
    : weights_(weights), weight_decay_(weight_decay) {
  for (const Weight& weight : *weights) {
    moments_.push_back(
        {std::vector<float>(weight.values.size()), std::vector<float>(weight.values.size())});
  }
}

void AdamW::Step(double learning_rate) {
  ++steps_;
  learning_rate_ = learning_rate;
  const double bias1 = 1 - std::pow(kBeta1, static_cast<double>(steps_));
  const double bias2 = 1 - std::pow(kBeta2, static_cast<double>(steps_));
  const float rate = static_cast<float>(learning_rate / bias1);
  const float scale = static_cast<float>(1 / std::sqrt(bias2));
  const float keep = static_cast<float>(1 - learning_rate * weight_decay_);
  for (size_t w = 0; w < weights_->size(); ++w) {
    std::vector<float>& values = (*weights_)[w].values;
    const std::vector<float>& gradient = (*weights_)[w].gradient;
    auto& [first, second] = moments_[w];
    for (size_t i = 0; i < values.size(); ++i) {
      first[i] = kBeta1 * first[i] + (1 - kBeta1) * gradient[i];
      second[i] = kBeta2 * second[i] + (1 - kBeta2) * gradient[i] * gradient[i];
      values[i] = keep * values[i] - rate * first[i] / (scale * std::sqrt(second[i]) + kEpsilon);
    }
  }
}

}  // namespace ptqwatch::examples
