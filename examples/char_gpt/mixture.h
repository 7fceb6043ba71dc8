#ifndef PTQWATCH_CHAR_GPT_MIXTURE_H_
#define PTQWATCH_CHAR_GPT_MIXTURE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "torch/nn/module.h"
#include "torch/nn/modules/linear.h"

namespace ptqwatch::examples {

/// How many experts a token takes.
inline constexpr int64_t kExpertsPerToken = 2;

/// A mixture of experts in place of a transformer's MLP. A router gives each token's two likeliest
/// experts their probabilities as weights, divided by their sum. An expert is a GELU MLP of half
/// the hidden width that the dense MLP has, so that a token is computed by as many parameters.
class Mixture : public torch::nn::Module {
 public:
  /// REQUIRES: experts >= kExpertsPerToken.
  Mixture(int64_t width, int64_t hidden, int64_t experts);

  /// `x` [.., width] and the result have the same shape. If `balance` is given, adds the balance
  /// loss of these tokens to it: the number of experts times the sum over experts of their share of
  /// the choices and their mean probability (arXiv 2101.03961, equations 4 to 6), which is 1 if all
  /// experts are alike.
  at::Tensor forward(const at::Tensor& x, at::Tensor* balance);

 private:
  class Expert;

  torch::nn::Linear router_;
  std::vector<std::shared_ptr<Expert>> experts_;
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_CHAR_GPT_MIXTURE_H_
