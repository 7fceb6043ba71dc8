#include <gtest/gtest.h>

#include "ATen/ops/cat.h"
#include "ATen/ops/log_softmax.h"
#include "models/decoder.h"
#include "unit/models/tiny_model.h"

namespace ptqwatch::internal {
namespace token_losses_test {

using testing::ParsedTinyConfig;
using testing::RandomTokens;
using testing::RandomWeights;

// A vocabulary whose logits of 60 tokens take several slices.
const ModelConfig& LargeVocabulary() {
  static const ModelConfig* const config = new ModelConfig(ParsedTinyConfig(
      "llama",
      ", \"vocab_size\": 700000, \"num_hidden_layers\": 1, \"tie_word_embeddings\": true"));
  return *config;
}

at::Tensor Normal(std::vector<int64_t> shape) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(uint64_t{7}));
}

TEST(TokenLossesTest, AreMinusTheLogProbabilitiesOfTargets) {
  const ModelConfig& config = LargeVocabulary();
  const MapReader reader(RandomWeights(config));
  const Decoder decoder = Decoder::Create(config, reader).value();
  const DecoderHead head = decoder.ReadHead().value();
  const at::Tensor hidden = Normal({1, 60, 32}), targets = RandomTokens(1, 60, config.vocabulary);
  const at::Tensor losses = head.TokenLosses(hidden, targets);
  ASSERT_EQ(losses.sizes(), at::IntArrayRef({1, 60}));
  for (const int64_t token : {0, 22, 23, 24, 59}) {
    const at::Tensor logits = head.Logits(hidden.narrow(1, token, 1)).view(-1).to(at::kDouble);
    const double expected =
        -at::log_softmax(logits, 0)[targets[0][token].item<int64_t>()].item<double>();
    EXPECT_NEAR(losses[0][token].item<double>(), expected, 1e-5);
  }
}

TEST(TokenLossesTest, OtherSequencesDoNotChangeABit) {
  const ModelConfig config = ParsedTinyConfig("gpt_neox");
  const MapReader reader(RandomWeights(config));
  const Decoder decoder = Decoder::Create(config, reader).value();
  const DecoderHead head = decoder.ReadHead().value();
  const at::Tensor hidden = Normal({5, 33, 32}), targets = RandomTokens(5, 33, 37);
  const at::Tensor together = head.TokenLosses(hidden, targets);
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(head.TokenLosses(hidden.narrow(0, i, 1), targets.narrow(0, i, 1))
                    .equal(together.narrow(0, i, 1)));
  }
}

}  // namespace token_losses_test
}  // namespace ptqwatch::internal
