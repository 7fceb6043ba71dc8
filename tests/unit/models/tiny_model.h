#ifndef PTQWATCH_TESTS_UNIT_MODELS_TINY_MODEL_H_
#define PTQWATCH_TESTS_UNIT_MODELS_TINY_MODEL_H_

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/TensorOperators.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/randint.h"
#include "ATen/ops/randn.h"
#include "gtest/gtest.h"
#include "models/block_layout.h"
#include "models/decoder.h"
#include "models/model_config.h"
#include "models/weight_reader.h"

namespace ptqwatch::testing {

/// A config.json of two blocks with four heads of 8; `more` is appended, ", \"key\": value".
inline std::string TinyConfig(std::string_view model_type, std::string_view more = "") {
  return "{\"model_type\": \"" + std::string(model_type) +
         "\", \"vocab_size\": 37, \"hidden_size\": 32, \"intermediate_size\": 24, "
         "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"head_dim\": 8, "
         "\"max_position_embeddings\": 64, \"n_embd\": 32, \"n_inner\": 24, \"n_layer\": 2, "
         "\"n_head\": 4, \"n_positions\": 64, \"num_experts\": 5, \"num_local_experts\": 5, "
         "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 12" +
         std::string(more) + "}";
}

inline internal::ModelConfig ParsedTinyConfig(std::string_view model_type,
                                              std::string_view more = "") {
  absl::StatusOr<internal::ModelConfig> config =
      internal::ParseModelConfig(TinyConfig(model_type, more), "config.json");
  if (!config.ok()) ADD_FAILURE() << config.status();
  return *config;
}

/// The same numbers for the same seed. Products with the matrices keep the size of their input.
inline internal::MapReader::Tensors RandomWeights(const internal::ModelConfig& config,
                                                  uint64_t seed = 1) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const internal::OuterLayout outer = internal::OuterLayoutOf(config);
  std::vector<internal::NamedShape> shapes = {outer.embedding, outer.positions, outer.final_norm,
                                              outer.final_norm_bias, outer.head};
  for (int64_t block = 0; block < config.blocks; ++block) {
    for (const auto& tensor : internal::LayoutOf(config, block).Tensors()) shapes.push_back(tensor);
  }
  internal::MapReader::Tensors tensors;
  for (const internal::NamedShape& tensor : shapes) {
    if (tensor.name.empty()) continue;
    at::Tensor value = at::randn(tensor.shape, generator);
    if (tensor.shape.size() >= 2) {
      value = value / std::sqrt(static_cast<double>(tensor.shape.back()));
    } else {
      value = value * 0.2 + (tensor.name.find("norm.weight") != std::string::npos ? 1 : 0);
    }
    if (tensor.name.find("act_fn.beta") != std::string::npos) value.fill_(0.5);
    if (tensor.name.find("act_fn.eps") != std::string::npos) value.fill_(-1e-6);
    tensors[tensor.name] = value;
  }
  return tensors;
}

inline at::Tensor RandomTokens(int64_t sequences, int64_t length, int64_t vocabulary,
                               uint64_t seed = 2) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randint(vocabulary, {sequences, length}, generator, at::kLong);
}

/// The output of the last block. Throws if a step fails.
inline at::Tensor Hidden(const internal::Decoder& decoder, const at::Tensor& tokens) {
  at::Tensor hidden = decoder.Embed(tokens).value();
  for (int64_t block = 0; block < decoder.blocks(); ++block) {
    hidden = decoder.ReadBlock(block).value().Forward(hidden);
  }
  return hidden;
}

inline at::Tensor Logits(const internal::Decoder& decoder, const at::Tensor& tokens) {
  return decoder.ReadHead().value().Logits(Hidden(decoder, tokens));
}

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_UNIT_MODELS_TINY_MODEL_H_
