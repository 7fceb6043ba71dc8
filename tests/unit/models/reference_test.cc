// Compares a decoder with the definition of the Llama architecture, in plain loops and in double.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "models/decoder.h"
#include "unit/models/tiny_model.h"

namespace ptqwatch::internal {
namespace reference_test {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

class LlamaReference {
 public:
  LlamaReference(const ModelConfig& config, const MapReader& reader)
      : config_(config), reader_(reader) {}

  Rows Logits(const std::vector<int64_t>& tokens) const {
    const Rows embedding = Matrix("model.embed_tokens.weight");
    Rows x;
    for (const int64_t token : tokens) x.push_back(embedding[static_cast<size_t>(token)]);
    for (int64_t block = 0; block < config_.blocks; ++block) {
      const std::string name = "model.layers." + std::to_string(block) + ".";
      Add(x, Attention(name + "self_attn.", Norm(x, name + "input_layernorm.weight")));
      Add(x, Mlp(name + "mlp.", Norm(x, name + "post_attention_layernorm.weight")));
    }
    return Times(Norm(x, "model.norm.weight"), "lm_head.weight");
  }

 private:
  Rows Matrix(const std::string& name) const {
    const at::Tensor tensor = reader_.Read(name).value().to(at::kDouble).contiguous();
    const double* value = tensor.const_data_ptr<double>();
    const int64_t rows = tensor.dim() == 1 ? 1 : tensor.size(0), cols = tensor.size(-1);
    Rows matrix;
    for (int64_t i = 0; i < rows; ++i)
      matrix.emplace_back(value + i * cols, value + (i + 1) * cols);
    return matrix;
  }
  static void Add(Rows& x, const Rows& y) {
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t i = 0; i < x[t].size(); ++i) x[t][i] += y[t][i];
    }
  }
  Rows Times(const Rows& x, const std::string& name) const {
    const Rows weight = Matrix(name);
    Rows result(x.size(), Row(weight.size(), 0.0));
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t o = 0; o < weight.size(); ++o) {
        for (size_t i = 0; i < x[t].size(); ++i) result[t][o] += weight[o][i] * x[t][i];
      }
    }
    return result;
  }
  Rows Norm(Rows x, const std::string& name) const {
    const Row weight = Matrix(name)[0];
    for (Row& row : x) {
      double squares = 0;
      for (const double value : row) squares += value * value;
      const double root = std::sqrt(squares / static_cast<double>(row.size()) + config_.norm_eps);
      for (size_t i = 0; i < row.size(); ++i) row[i] *= weight[i] / root;
    }
    return x;
  }
  // Turns each head of each row as a complex number by position * theta^(-2 i / head_dim).
  Rows Turned(Rows x) const {
    const auto dim = static_cast<size_t>(config_.head_dim), half = dim / 2;
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t begin = 0; begin < x[t].size(); begin += dim) {
        for (size_t i = 0; i < half; ++i) {
          const double angle = static_cast<double>(t) *
                               std::pow(config_.layers[0].rope->theta,
                                        -2.0 * static_cast<double>(i) / static_cast<double>(dim));
          const double a = x[t][begin + i], b = x[t][begin + i + half];
          x[t][begin + i] = a * std::cos(angle) - b * std::sin(angle);
          x[t][begin + i + half] = b * std::cos(angle) + a * std::sin(angle);
        }
      }
    }
    return x;
  }
  Rows Attention(const std::string& name, const Rows& x) const {
    const Rows q = Turned(Times(x, name + "q_proj.weight"));
    const Rows k = Turned(Times(x, name + "k_proj.weight"));
    const Rows v = Times(x, name + "v_proj.weight");
    const auto dim = static_cast<size_t>(config_.head_dim);
    const auto shared = static_cast<size_t>(config_.heads / config_.key_heads);
    Rows mixed(x.size(), Row(q[0].size(), 0.0));
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t head = 0; head < static_cast<size_t>(config_.heads); ++head) {
        const size_t at_q = head * dim, at_k = head / shared * dim;
        Row weight(t + 1, 0.0);
        double total = 0;
        for (size_t s = 0; s <= t; ++s) {
          for (size_t i = 0; i < dim; ++i) weight[s] += q[t][at_q + i] * k[s][at_k + i];
          weight[s] = std::exp(weight[s] / std::sqrt(static_cast<double>(dim)));
          total += weight[s];
        }
        for (size_t s = 0; s <= t; ++s) {
          for (size_t i = 0; i < dim; ++i) mixed[t][at_q + i] += weight[s] / total * v[s][at_k + i];
        }
      }
    }
    return Times(mixed, name + "o_proj.weight");
  }
  Rows Mlp(const std::string& name, const Rows& x) const {
    Rows gate = Times(x, name + "gate_proj.weight");
    const Rows up = Times(x, name + "up_proj.weight");
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t i = 0; i < gate[t].size(); ++i) {
        gate[t][i] *= up[t][i] / (1 + std::exp(-gate[t][i]));
      }
    }
    return Times(gate, name + "down_proj.weight");
  }

  const ModelConfig& config_;
  const MapReader& reader_;
};

TEST(ReferenceTest, LlamaIsItsDefinition) {
  const ModelConfig config = testing::ParsedTinyConfig(
      "llama", ", \"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-3, \"rope_theta\": 50");
  const MapReader reader(testing::RandomWeights(config));
  const Decoder decoder = Decoder::Create(config, reader).value();
  const at::Tensor tokens = testing::RandomTokens(1, 7, config.vocabulary);
  const at::Tensor logits = testing::Logits(decoder, tokens)[0];
  const int64_t* ids = tokens.const_data_ptr<int64_t>();
  const Rows expected = LlamaReference(config, reader).Logits({ids, ids + 7});
  for (int64_t t = 0; t < 7; ++t) {
    for (int64_t i = 0; i < config.vocabulary; ++i) {
      EXPECT_NEAR(logits[t][i].item<double>(),
                  expected[static_cast<size_t>(t)][static_cast<size_t>(i)], 1e-5);
    }
  }
}

}  // namespace reference_test
}  // namespace ptqwatch::internal
