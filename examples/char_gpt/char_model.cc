#include "char_model.h"

#include "torch/nn/functional/loss.h"

namespace ptqwatch::examples {
namespace {

at::Tensor LossesOf(const at::Tensor& logits, const at::Tensor& y) {
  return torch::nn::functional::cross_entropy(
             logits, y.flatten(),
             torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone))
      .view_as(y);
}

}  // namespace

torch::nn::Linear MakeLinear(int64_t in, int64_t out) {
  return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false));
}

at::Tensor CharModel::TokenLosses(const at::Tensor& x, const at::Tensor& y, at::Tensor* balance) {
  return LossesOf(Logits(x, balance), y);
}

CharModel::Answers CharModel::TokenAnswers(const at::Tensor& x, const at::Tensor& y) {
  const at::Tensor logits = Logits(x, nullptr);
  return {LossesOf(logits, y), logits.detach().argmax(-1).view_as(y) == y};
}

}  // namespace ptqwatch::examples
