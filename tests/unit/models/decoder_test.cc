#include "models/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "ATen/ops/linear.h"
#include "ATen/ops/ones.h"
#include "models/model_family.h"
#include "unit/models/tiny_model.h"

namespace ptqwatch::internal {
namespace decoder_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Hidden;
using testing::Logits;
using testing::ParsedTinyConfig;
using testing::RandomTokens;
using testing::RandomWeights;

constexpr std::string_view kHeads = ", \"num_key_value_heads\": 4";

Decoder Create(const ModelConfig& config, const MapReader& reader) {
  absl::StatusOr<Decoder> decoder = Decoder::Create(config, reader);
  if (!decoder.ok()) ADD_FAILURE() << decoder.status();
  return *decoder;
}

class EveryFamily : public ::testing::TestWithParam<std::string_view> {
 protected:
  const ModelConfig config_ = ParsedTinyConfig(GetParam(), kHeads);
  const MapReader reader_{RandomWeights(config_)};
  const Decoder decoder_ = Create(config_, reader_);
};

std::vector<std::string_view> FamilyNames() {
  std::vector<std::string_view> names;
  for (const ModelFamily& family : ModelFamilies()) names.push_back(family.model_type);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Decoder, EveryFamily, ::testing::ValuesIn(FamilyNames()),
                         [](const auto& family) { return std::string(family.param); });

TEST_P(EveryFamily, IsCausal) {
  const at::Tensor tokens = RandomTokens(2, 9, 37);
  const at::Tensor logits = Logits(decoder_, tokens);
  ASSERT_EQ(logits.sizes(), at::IntArrayRef({2, 9, 37}));
  at::Tensor changed = tokens.clone();
  changed.select(1, 5).fill_(3);
  changed.select(1, 5).sub_(tokens.select(1, 5).eq(3).to(at::kLong));
  const at::Tensor later = (Logits(decoder_, changed) - logits).abs().amax(-1);
  EXPECT_LT(later.narrow(1, 0, 5).max().item<float>(), 1e-5);
  EXPECT_GT(later.narrow(1, 5, 4).min().item<float>(), 1e-4);
}

TEST_P(EveryFamily, CallsApplyOncePerLinearInOrder) {
  const DecoderBlock block = decoder_.ReadBlock(1).value();
  const std::vector<DecoderLinear> linears = decoder_.LinearsOf(1);
  const at::Tensor hidden = decoder_.Embed(RandomTokens(2, 5, 37)).value();
  std::vector<at::Tensor> inputs;
  const at::Tensor result = block.Forward(hidden, [&](size_t index, const at::Tensor& x) {
    EXPECT_EQ(index, inputs.size());
    inputs.push_back(x);
    return at::linear(x, block.weights()[index], block.biases()[index]);
  });
  EXPECT_TRUE(result.equal(block.Forward(hidden)));
  ASSERT_EQ(inputs.size(), linears.size());
  for (size_t i = 0; i < linears.size(); ++i) {
    EXPECT_EQ(inputs[i].size(-1), linears[i].inputs);
    EXPECT_EQ(block.weights()[i].sizes(), at::IntArrayRef({linears[i].outputs, linears[i].inputs}));
    EXPECT_EQ(block.biases()[i].defined(), !linears[i].bias.empty());
    if (i == 0) continue;
    EXPECT_EQ(inputs[i].is_same(inputs[i - 1]), linears[i].input == linears[i - 1].input);
  }
}

TEST_P(EveryFamily, NamesTensorsThatAreMissingOrLeftOver) {
  for (const std::string& name : decoder_.TensorNames()) {
    MapReader::Tensors tensors = RandomWeights(config_);
    tensors["model.extra." + name] = tensors[name];
    tensors.erase(name);
    const MapReader damaged(tensors);
    const absl::Status status = Decoder::Create(config_, damaged).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("'" + name + "' ["), HasSubstr("is missing"),
                      HasSubstr("'model.extra." + name + "' is left over")));
  }
}

TEST_P(EveryFamily, NamesATensorOfAnotherShape) {
  for (const std::string& name : decoder_.TensorNames()) {
    MapReader::Tensors tensors = RandomWeights(config_);
    tensors[name] = at::ones({5, 7});
    const MapReader damaged(tensors);
    const absl::Status status = Decoder::Create(config_, damaged).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("'" + name + "' is [5, 7] instead of ["));
  }
}

TEST_P(EveryFamily, CountsWhatItReads) {
  int64_t elements = 0, block_elements = 0;
  for (const std::string& name : decoder_.TensorNames()) {
    const int64_t count = reader_.Read(name).value().numel();
    elements += count;
    if (name.starts_with(std::string(config_.names.blocks) + "1.")) block_elements += count;
  }
  EXPECT_EQ(decoder_.parameters(), elements);
  EXPECT_EQ(decoder_.BlockBytes(1), 4 * block_elements);
}

TEST(DecoderTest, ATiedHeadIsTheEmbeddingUnlessTheFileHasOne) {
  const ModelConfig tied = ParsedTinyConfig("llama", ", \"tie_word_embeddings\": true");
  const ModelConfig untied = ParsedTinyConfig("llama");
  const at::Tensor tokens = RandomTokens(1, 6, 37);
  MapReader::Tensors tensors = RandomWeights(untied);
  const at::Tensor head = tensors["lm_head.weight"];
  const MapReader with_head(tensors);
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];
  const MapReader with_embedding(tensors);
  tensors.erase("lm_head.weight");
  const MapReader without(tensors);
  const at::Tensor logits = Logits(Create(tied, without), tokens);
  EXPECT_TRUE(logits.equal(Logits(Create(untied, with_embedding), tokens)));
  EXPECT_TRUE(
      Logits(Create(untied, with_head), tokens).equal(Logits(Create(tied, with_head), tokens)));
  EXPECT_FALSE(logits.equal(Logits(Create(tied, with_head), tokens)));
  EXPECT_FALSE(Decoder::Create(untied, without).ok());
  EXPECT_EQ(Create(tied, without).parameters(),
            Create(untied, with_head).parameters() - head.numel());
}

TEST(DecoderTest, OldNamesOfPythiaAreKnown) {
  const ModelConfig config = ParsedTinyConfig("gpt_neox");
  MapReader::Tensors tensors = RandomWeights(config);
  const MapReader older(tensors);
  tensors["lm_head.weight"] = tensors["embed_out.weight"];
  const MapReader both(tensors);
  tensors.erase("embed_out.weight");
  for (const char* name :
       {"attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq"}) {
    tensors[std::string("gpt_neox.layers.0.") + name] = at::ones({3}).to(at::kBool);
  }
  const MapReader newer(tensors);
  const at::Tensor tokens = RandomTokens(1, 6, 37);
  const Decoder decoder = Create(config, newer);
  EXPECT_TRUE(Logits(Create(config, older), tokens).equal(Logits(decoder, tokens)));
  EXPECT_EQ(decoder.parameters(), Create(config, older).parameters());
  EXPECT_THAT(std::string(Decoder::Create(config, both).status().message()),
              HasSubstr("'lm_head.weight' is left over"));
}

TEST(DecoderTest, BuffersOfPublishedGpt2AreIgnored) {
  const ModelConfig config = ParsedTinyConfig("gpt2");
  MapReader::Tensors tensors = RandomWeights(config);
  const MapReader newer(tensors);
  tensors["transformer.h.0.attn.bias"] = at::ones({1, 1, 64, 64});
  tensors["transformer.h.0.attn.masked_bias"] = at::ones({});
  const MapReader older(tensors);
  EXPECT_EQ(Create(config, older).TensorNames(), Create(config, newer).TensorNames());
  tensors["transformer.h.0.mlp.bias"] = at::ones({});
  const MapReader other(tensors);
  EXPECT_THAT(std::string(Decoder::Create(config, other).status().message()),
              HasSubstr("'transformer.h.0.mlp.bias' is left over"));
}

TEST(DecoderTest, LearnedPositionsEndASequence) {
  const ModelConfig config =
      ParsedTinyConfig("gpt2", ", \"n_positions\": 6, \"max_position_embeddings\": 6");
  const MapReader reader(RandomWeights(config));
  const Decoder decoder = Create(config, reader);
  EXPECT_TRUE(decoder.Embed(RandomTokens(2, 6, 37)).ok());
  const absl::Status status = decoder.Embed(RandomTokens(2, 7, 37)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("7 tokens"), HasSubstr("6 positions")));
}

TEST(DecoderTest, LongListsOfComplaintsAreCut) {
  const ModelConfig config = ParsedTinyConfig("llama");
  const MapReader empty({});
  const std::string message(Decoder::Create(config, empty).status().message());
  EXPECT_THAT(message, AllOf(HasSubstr("'lm_head.weight'"), HasSubstr("and 1 more")));
}

TEST(DecoderTest, EmbedsTheRowsOfTokensAndNamesOneOutsideOfTheVocabulary) {
  const ModelConfig config = ParsedTinyConfig("llama");
  const MapReader reader(RandomWeights(config));
  const Decoder decoder = Create(config, reader);
  const at::Tensor tokens = RandomTokens(3, 8, 37);
  const at::Tensor table = reader.Read("model.embed_tokens.weight").value();
  EXPECT_TRUE(
      decoder.Embed(tokens).value().equal(table.index_select(0, tokens.view(-1)).view({3, 8, 32})));
  for (const int64_t wrong : {-1, 37}) {
    at::Tensor bad = tokens.clone();
    bad[1][6].fill_(wrong);
    const absl::Status status = decoder.Embed(bad).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("token 6 of sequence 1 is " + std::to_string(wrong)));
  }
  EXPECT_FALSE(decoder.Embed(tokens.to(at::kInt)).ok());
  EXPECT_FALSE(decoder.ReadBlock(2).ok());
  EXPECT_FALSE(decoder.ReadBlock(-1).ok());
}

// RoPE is relative, so what lies before the windows changes nothing.
TEST(DecoderTest, AWindowHidesWhatIsFurtherAway) {
  const ModelConfig config = ParsedTinyConfig(
      "olmo3",
      ", \"sliding_window\": 3, \"layer_types\": [\"sliding_attention\", \"sliding_attention\"]");
  const MapReader reader(RandomWeights(config));
  const Decoder decoder = Create(config, reader);
  const at::Tensor tokens = RandomTokens(1, 12, 37);
  // Two blocks see 2 * 2 earlier tokens.
  const at::Tensor whole = Logits(decoder, tokens).select(1, 11);
  EXPECT_LT(
      (Logits(decoder, tokens.narrow(1, 7, 5)).select(1, 4) - whole).abs().max().item<float>(),
      1e-5);
  EXPECT_GT(
      (Logits(decoder, tokens.narrow(1, 8, 4)).select(1, 3) - whole).abs().max().item<float>(),
      1e-4);
}

TEST(DecoderTest, WithoutPositionsOrderDoesNotMatter) {
  const std::string_view keys = ", \"num_key_value_heads\": 2, \"no_rope_layers\": ";
  for (const bool rope : {false, true}) {
    const ModelConfig config = ParsedTinyConfig(
        "smollm3", std::string(keys) + (rope ? "[1, 1]" : "[0, 0]") + ", \"num_hidden_layers\": 1");
    const MapReader reader(RandomWeights(config));
    const Decoder decoder = Create(config, reader);
    const at::Tensor tokens = RandomTokens(1, 6, 37);
    at::Tensor swapped = tokens.clone();
    swapped.narrow(1, 0, 5).copy_(tokens.narrow(1, 0, 5).flip(1));
    const float change =
        (Logits(decoder, tokens) - Logits(decoder, swapped)).select(1, 5).abs().max().item<float>();
    if (rope) {
      EXPECT_GT(change, 1e-4);
    } else {
      EXPECT_LT(change, 1e-5);
    }
  }
}

}  // namespace decoder_test
}  // namespace ptqwatch::internal
