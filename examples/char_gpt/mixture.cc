#include "mixture.h"

#include <string>

#include "char_model.h"
#include "torch/nn/modules/container/modulelist.h"

namespace ptqwatch::examples {

class Mixture::Expert : public torch::nn::Module {
 public:
  Expert(int64_t width, int64_t hidden)
      : up_(register_module("up", MakeLinear(width, hidden))),
        down_(register_module("down", MakeLinear(hidden, width))) {}

  at::Tensor forward(const at::Tensor& x) { return down_(at::gelu(up_(x))); }

 private:
  torch::nn::Linear up_;
  torch::nn::Linear down_;
};

Mixture::Mixture(int64_t width, int64_t hidden, int64_t experts)
    : router_(register_module("router", MakeLinear(width, experts))) {
  torch::nn::ModuleList list;
  for (int64_t i = 0; i < experts; ++i) {
    experts_.push_back(std::make_shared<Expert>(width, hidden / kExpertsPerToken));
    list->push_back(experts_.back());
  }
  register_module("experts", list);
}

at::Tensor Mixture::forward(const at::Tensor& x, at::Tensor* balance) {
  const at::Tensor tokens = x.flatten(0, -2);
  const at::Tensor probabilities = at::softmax(router_(tokens), -1, at::kFloat);
  const auto [likeliest, chosen] = probabilities.topk(kExpertsPerToken, -1);
  const at::Tensor weights = (likeliest / likeliest.sum(-1, true)).to(x.scalar_type());
  at::Tensor sum = at::zeros_like(tokens);
  const int64_t count = std::ssize(experts_);
  for (int64_t i = 0; i < count; ++i) {
    // An expert without tokens is computed too, so that every parameter has a gradient.
    const std::vector<at::Tensor> places = at::where(chosen == i);
    const at::Tensor weight = weights.index({places[0], places[1]}).unsqueeze(-1);
    sum.index_add_(
        0, places[0],
        experts_[static_cast<size_t>(i)]->forward(tokens.index_select(0, places[0])) * weight);
  }
  if (balance != nullptr) {
    const at::Tensor shares = chosen.flatten().bincount({}, count).to(at::kFloat) / chosen.numel();
    const at::Tensor loss = count * (shares * probabilities.mean(0)).sum();
    *balance = balance->defined() ? *balance + loss : loss;
  }
  return sum.view_as(x);
}

}  // namespace ptqwatch::examples
