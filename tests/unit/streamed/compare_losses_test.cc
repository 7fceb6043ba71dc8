#include "streamed/compare_losses.h"

#include <gmock/gmock.h>

#include <cmath>
#include <optional>
#include <vector>

#include "unit/streamed/tiny_checkpoint.h"

namespace ptqwatch::internal {
namespace compare_losses_test {

using testing::TinyCheckpoint;

// Two batches of sequences with 10 tokens each.
std::vector<UnitLosses> Batches(const std::vector<double>& first,
                                const std::vector<double>& second) {
  std::vector<UnitLosses> batches;
  for (const std::vector<double>& sums : {first, second}) {
    batches.push_back({.sum = sums,
                       .weight = std::vector<double>(sums.size(), 10),
                       .tokens = 10 * std::ssize(sums),
                       .correct = {},
                       .examples = {}});
  }
  return batches;
}

TEST(CompareLosses, PairsSequencesOfAllBatches) {
  const CheckpointLosses a{.full = Batches({20, 30}, {40}),
                           .quantized = {Batches({22, 33}, {44}), Batches({20, 31}, {40})}};
  const CheckpointLosses b{.full = Batches({21, 31}, {41}),
                           .quantized = {Batches({22, 32}, {42}), {}}};
  const auto difference = CompareLosses(a, b);
  ASSERT_TRUE(difference.ok()) << difference.status();
  EXPECT_EQ(difference->sequences, 3);
  EXPECT_EQ(difference->tokens, 30);
  // Each sequence of b costs 1 nat more, although sequences differ by 20.
  EXPECT_NEAR(*difference->loss_nats.value, 0.1, 1e-15);
  EXPECT_NEAR(*difference->loss_nats.stderr_value, 0, 1e-15);
  ASSERT_EQ(difference->quantizers.size(), 2u);
  const QuantizerDifference& quantizer = difference->quantizers[0];
  EXPECT_NEAR(*quantizer.loss_nats.value, -0.1, 1e-15);              // 96 - 99 over 30
  EXPECT_NEAR(*quantizer.delta_nats.value, 0.1 - 0.3, 1e-15);        // 3 - 9 over 30
  EXPECT_NEAR(*quantizer.error_ratio.value, 3.0 / 93 - 0.1, 1e-15);  // a: 9 / 90
  // a has the same E in each sequence, so that the error is that of b: rests 1 - 3 / 93 x.
  double squares = 0;
  for (const double loss : {21, 31, 41}) squares += std::pow(1 - 3.0 / 93 * loss, 2);
  EXPECT_NEAR(*quantizer.error_ratio.stderr_value, std::sqrt(1.5 * squares) / 93, 1e-12);
  // The second quantizer failed in b.
  EXPECT_FALSE(difference->quantizers[1].loss_nats.value);
  EXPECT_FALSE(difference->quantizers[1].error_ratio.value);
}

TEST(CompareLosses, RefusesLossesOfOtherSequences) {
  const CheckpointLosses a{.full = Batches({20, 30}, {40}), .quantized = {Batches({22, 33}, {44})}};
  CheckpointLosses b = a;
  b.full = Batches({20}, {40});
  EXPECT_EQ(CompareLosses(a, b).status().code(), absl::StatusCode::kFailedPrecondition);
  b = a;
  b.quantized[0] = Batches({22}, {44});
  EXPECT_EQ(CompareLosses(a, b).status().code(), absl::StatusCode::kFailedPrecondition);
  b.quantized.clear();
  EXPECT_EQ(CompareLosses(a, b).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(CompareLosses, AgreesWithTheReportsOfTwoCheckpoints) {
  TinyCheckpoint first;
  TinyCheckpoint second;
  second.reader.tensor("model.layers.0.mlp.down_proj.weight").mul_(1.1);
  CheckpointLosses losses[2];
  Report reports[2];
  for (TinyCheckpoint* tiny : {&first, &second}) {
    const size_t i = tiny == &second;
    auto report = MeasureCheckpoint(tiny->decoder, tiny->data, tiny->options, {}, &losses[i]);
    ASSERT_TRUE(report.ok()) << report.status();
    reports[i] = *std::move(report);
  }
  const auto difference = CompareLosses(losses[0], losses[1]);
  ASSERT_TRUE(difference.ok()) << difference.status();
  EXPECT_EQ(difference->sequences, 37);
  EXPECT_EQ(difference->tokens, reports[0].probe_tokens);
  const auto minus = [](const std::optional<double>& b, const std::optional<double>& a) {
    return *b - *a;
  };
  EXPECT_NEAR(*difference->loss_nats.value,
              minus(reports[1].probe_loss_nats, reports[0].probe_loss_nats), 1e-12);
  EXPECT_NE(*difference->loss_nats.value, 0);
  EXPECT_LT(*difference->loss_nats.stderr_value, *reports[0].probe_loss_stderr_nats);
  ASSERT_EQ(difference->quantizers.size(), first.options.quantizers.size());
  for (size_t i = 0; i < difference->quantizers.size(); ++i) {
    const QuantizationReport& a = reports[0].quantization[i];
    const QuantizationReport& b = reports[1].quantization[i];
    const QuantizerDifference& quantizer = difference->quantizers[i];
    EXPECT_NEAR(*quantizer.loss_nats.value, minus(b.loss_nats, a.loss_nats), 1e-12);
    EXPECT_NEAR(*quantizer.delta_nats.value, minus(b.delta_nats, a.delta_nats), 1e-12);
    EXPECT_NEAR(*quantizer.error_ratio.value, minus(b.error_ratio, a.error_ratio), 1e-12);
    EXPECT_GT(*quantizer.error_ratio.stderr_value, 0);
  }
}

TEST(CompareLosses, FindsNoDifferenceBetweenAModelAndItself) {
  TinyCheckpoint tiny;
  tiny.options.quantizers.resize(2);
  CheckpointLosses losses[2];
  for (CheckpointLosses& own : losses) {
    ASSERT_TRUE(MeasureCheckpoint(tiny.decoder, tiny.data, tiny.options, {}, &own).ok());
  }
  const auto difference = CompareLosses(losses[0], losses[1]);
  ASSERT_TRUE(difference.ok()) << difference.status();
  for (const QuantizerDifference& quantizer : difference->quantizers) {
    EXPECT_EQ(quantizer.error_ratio.value, 0);
    EXPECT_EQ(quantizer.error_ratio.stderr_value, 0);
  }
}

}  // namespace compare_losses_test
}  // namespace ptqwatch::internal
