#include <memory>
#include <string>
#include <vector>

#include "char_model.h"
#include "torch/nn/modules/embedding.h"
#include "torch/nn/modules/linear.h"
#include "torch/nn/modules/normalization.h"

namespace ptqwatch::examples {
namespace {

namespace nn = torch::nn;

constexpr int64_t kContext = 8;
constexpr int64_t kEmbeddingWidth = 16;

class Mlp : public CharModel {
 public:
  explicit Mlp(const ModelConfig& config) : length_(config.length) {
    characters_ = register_module("characters", nn::Embedding(config.vocabulary, kEmbeddingWidth));
    int64_t in = kContext * kEmbeddingWidth;
    for (int64_t i = 0; i < config.layers; ++i) {
      linears_.push_back(
          register_module("linear_" + std::to_string(i), MakeLinear(in, config.width)));
      norms_.push_back(register_module("norm_" + std::to_string(i),
                                       nn::LayerNorm(nn::LayerNormOptions({config.width}))));
      in = config.width;
    }
    head_ = register_module("head", MakeLinear(in, config.vocabulary));
  }

  int64_t inputs() const override { return length_ + kContext - 1; }

 protected:
  at::Tensor Logits(const at::Tensor& x, at::Tensor* /*balance*/) override {
    at::Tensor h = characters_(x.unfold(1, kContext, 1)).flatten(2).flatten(0, 1);
    for (size_t i = 0; i < linears_.size(); ++i) {
      const at::Tensor out = at::relu(norms_[i](linears_[i](h)));
      h = out.sizes() == h.sizes() ? h + out : out;
    }
    return head_(h);
  }

 private:
  int64_t length_;
  nn::Embedding characters_{nullptr};
  std::vector<nn::Linear> linears_;
  std::vector<nn::LayerNorm> norms_;
  nn::Linear head_{nullptr};
};

}  // namespace

std::shared_ptr<CharModel> MakeMlp(const ModelConfig& config) {
  return std::make_shared<Mlp>(config);
}

}  // namespace ptqwatch::examples
