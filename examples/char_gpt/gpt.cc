#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "char_model.h"
#include "mixture.h"
#include "torch/nn/modules/embedding.h"
#include "torch/nn/modules/normalization.h"

namespace ptqwatch::examples {
namespace {

namespace nn = torch::nn;

nn::LayerNorm MakeNorm(int64_t width) { return nn::LayerNorm(nn::LayerNormOptions({width})); }

class Block : public nn::Module {
 public:
  explicit Block(const ModelConfig& config)
      : heads_(config.heads),
        attention_norm_(register_module("attention_norm", MakeNorm(config.width))),
        qkv_(register_module("qkv", MakeLinear(config.width, 3 * config.width))),
        projection_(register_module("projection", MakeLinear(config.width, config.width))),
        mlp_norm_(register_module("mlp_norm", MakeNorm(config.width))) {
    const int64_t hidden = 4 * config.width;
    if (config.experts > 0) {
      mixture_ =
          register_module("mlp", std::make_shared<Mixture>(config.width, hidden, config.experts));
      return;
    }
    up_ = register_module("up", MakeLinear(config.width, hidden));
    down_ = register_module("down", MakeLinear(hidden, config.width));
  }

  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask, at::Tensor* balance) {
    const at::Tensor h = x + projection_(Attention(qkv_(attention_norm_(x)), mask));
    if (mixture_ != nullptr) return h + mixture_->forward(mlp_norm_(h), balance);
    return h + down_(at::gelu(up_(mlp_norm_(h))));
  }

 private:
  at::Tensor Attention(const at::Tensor& qkv, const at::Tensor& mask) const {
    const int64_t batch = qkv.size(0);
    const int64_t time = qkv.size(1);
    const int64_t width = qkv.size(2) / 3;
    const int64_t head_width = width / heads_;
    const at::Tensor split = qkv.view({batch, time, 3, heads_, head_width})
                                 .permute({2, 0, 3, 1, 4})
                                 .reshape({3, batch * heads_, time, head_width});
    const std::vector<at::Tensor> parts = split.unbind(0);
    const double scale = 1.0 / std::sqrt(static_cast<double>(head_width));
    const at::Tensor scores =
        at::baddbmm(mask, parts[0], parts[1].transpose(1, 2), /*beta=*/1.0, /*alpha=*/scale);
    return at::bmm(at::softmax(scores, -1), parts[2])
        .view({batch, heads_, time, head_width})
        .transpose(1, 2)
        .reshape({batch, time, width});
  }

  int64_t heads_;
  nn::LayerNorm attention_norm_;
  nn::Linear qkv_;
  nn::Linear projection_;
  nn::LayerNorm mlp_norm_;
  nn::Linear up_{nullptr};
  nn::Linear down_{nullptr};
  std::shared_ptr<Mixture> mixture_;  // in place of up_ and down_
};

class Gpt : public CharModel {
 public:
  explicit Gpt(const ModelConfig& config) : length_(config.length) {
    characters_ = register_module("characters", nn::Embedding(config.vocabulary, config.width));
    positions_ = register_module("positions", nn::Embedding(config.length, config.width));
    for (int64_t i = 0; i < config.layers; ++i) {
      blocks_.push_back(
          register_module("blocks_" + std::to_string(i), std::make_shared<Block>(config)));
    }
    norm_ = register_module("norm", MakeNorm(config.width));
    head_ = register_module("head", MakeLinear(config.width, config.vocabulary));
    mask_ = at::full({length_, length_}, -std::numeric_limits<float>::infinity()).triu(1);
  }

  int64_t inputs() const override { return length_; }

 protected:
  at::Tensor Logits(const at::Tensor& x, at::Tensor* balance) override {
    if (mask_.device() != x.device()) mask_ = mask_.to(x.device());
    at::Tensor h = characters_(x) + positions_->weight;
    for (const auto& block : blocks_) h = block->forward(h, mask_, balance);
    return head_(norm_(h)).flatten(0, 1);
  }

 private:
  int64_t length_;
  nn::Embedding characters_{nullptr};
  nn::Embedding positions_{nullptr};
  std::vector<std::shared_ptr<Block>> blocks_;
  nn::LayerNorm norm_{nullptr};
  nn::Linear head_{nullptr};
  at::Tensor mask_;
};

}  // namespace

std::shared_ptr<CharModel> MakeGpt(const ModelConfig& config) {
  return std::make_shared<Gpt>(config);
}

}  // namespace ptqwatch::examples
