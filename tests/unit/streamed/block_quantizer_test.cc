#include "streamed/block_quantizer.h"

#include <gmock/gmock.h>

#include <vector>

#include "ATen/ops/from_blob.h"
#include "ptqwatch/offline/quantize_model.h"
#include "snapshot/memory_meter.h"
#include "streamed/checkpoint_plan.h"
#include "streamed/token_stream.h"
#include "streamed/whole_model.h"
#include "unit/streamed/tiny_checkpoint.h"

namespace ptqwatch::internal {
namespace block_quantizer_test {

using testing::TinyCheckpoint;

absl::Status Ignore(size_t, const at::Tensor&) { return absl::OkStatus(); }

TEST(BlockQuantizer, GivesTheWeightsOfQuantizeModel) {
  const TinyCheckpoint tiny;
  const QuantizerSpec spec{.method = QuantizationMethod::kGptq, .bits = 3, .group_size = 16};
  const auto subject = MakeDecoderSubject(tiny.decoder, {}, TokenBatches(tiny.data.calibration));
  ASSERT_TRUE(subject.ok()) << subject.status();
  const auto whole = QuantizeModel(**subject, {.spec = spec});
  ASSERT_TRUE(whole.ok()) << whole.status();

  HostBackend backend;
  auto stream = TokenStream::Embed(tiny.decoder, tiny.data.calibration, {});
  ASSERT_TRUE(stream.ok()) << stream.status();
  size_t layer = 0;
  for (int64_t index = 0; index < tiny.decoder.blocks(); ++index) {
    const auto block = tiny.decoder.ReadBlock(index);
    ASSERT_TRUE(block.ok()) << block.status();
    const std::vector<DecoderLinear> linears = tiny.decoder.LinearsOf(index);
    const auto grams = CaptureBlock(*block, linears, {0, linears.size()}, *stream, backend, {});
    ASSERT_TRUE(grams.ok()) << grams.status();
    EXPECT_EQ(grams->grams.size(), 4u);  // attention, its output, gate and up, down
    EXPECT_EQ(BlockGramBytes(linears), 8 * (3 * 32 * 32 + 24 * 24));
    std::vector<QuantizedBlock> quantized(1, QuantizedBlock(*block));
    ASSERT_TRUE(QuantizeLinears(*block, linears, *grams, {spec}, {}, backend, {}, quantized).ok());
    for (size_t linear = 0; linear < linears.size(); ++linear, ++layer) {
      const QuantizedLayer& expected = whole->layers[layer];
      EXPECT_EQ(expected.name, linears[linear].name);
      EXPECT_EQ(expected.tokens, 1200);
      const at::Tensor& weight = quantized[0].weights[linear];
      ASSERT_EQ(weight.numel(), std::ssize(expected.weight.dequantized));
      const float* values = weight.const_data_ptr<float>();
      EXPECT_TRUE(std::equal(values, values + weight.numel(), expected.weight.dequantized.begin()))
          << expected.name;
    }
  }
  EXPECT_EQ(layer, whole->layers.size());
}

TEST(DivideByGrams, KeepsLinearsOfOneInputTogether) {
  const TinyCheckpoint tiny;
  const std::vector<DecoderLinear> linears = tiny.decoder.LinearsOf(0);
  const auto ends = [&](int64_t max_bytes) {
    std::vector<size_t> found;
    for (const LinearRange& range : DivideByGrams(linears, max_bytes)) {
      EXPECT_EQ(range.first, found.empty() ? 0 : found.back());
      found.push_back(range.end);
    }
    return found;
  };
  EXPECT_EQ(ends(BlockGramBytes(linears)), std::vector<size_t>({7}));
  EXPECT_EQ(ends(BlockGramBytes(linears) - 1), std::vector<size_t>({6, 7}));
  EXPECT_EQ(ends(2 * 8 * 32 * 32), std::vector<size_t>({4, 7}));
  EXPECT_EQ(ends(0), std::vector<size_t>({3, 4, 6, 7}));
}

class ForwardBytesOf : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, ForwardBytesOf,
                         ::testing::Values("gpt_oss", "llama", "olmoe", "qwen2_moe"));

TEST_P(ForwardBytesOf, BoundTheMemoryOfASlice) {
  const TinyCheckpoint tiny(GetParam(), ", \"num_key_value_heads\": 2, \"num_experts_per_tok\": 1");
  for (const int64_t length : {16, 60, 64}) {
    const at::Tensor tokens = testing::TinyTokens(SequencesTogether(length), length, 0);
    auto stream = TokenStream::Embed(tiny.decoder, tokens, {});
    ASSERT_TRUE(stream.ok()) << stream.status();
    const auto block = tiny.decoder.ReadBlock(1);
    const MemoryMeter meter;
    ASSERT_TRUE(stream->PassThrough(*block, block->weights(), Ignore, {}).ok());
    const int64_t bound = ForwardBytes(tiny.decoder.config(), tiny.decoder.LinearsOf(1), length);
    EXPECT_LE(meter.peak(), bound) << length;
    EXPECT_GE(meter.peak(), bound / 4) << length;
  }
}

TEST(TokenStream, IsCutByLengthAlone) {
  EXPECT_EQ(SequencesTogether(60), 17);
  EXPECT_EQ(SequencesTogether(1024), 1);
  EXPECT_EQ(SequencesTogether(4096), 1);
  const std::vector<Batch> batches = TokenBatches(testing::TinyTokens(37, 60, 1));
  ASSERT_EQ(batches.size(), 3u);
  EXPECT_EQ(batches[0][0].size(0), 17);
  EXPECT_EQ(batches[2][0].size(0), 3);
}

}  // namespace block_quantizer_test
}  // namespace ptqwatch::internal
