// Sharing between the quantizers of a layer changes no result and takes no more memory than
// reserved.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ptqwatch/quantizer.h"
#include "quantize/kernels/feedback_matrix.h"
#include "unit/quantize/reference.h"
#include "unit/quantize/run_ok.h"

namespace ptqwatch {
namespace layer_quantizer_test {

using testing::CorrelatedInputs;
using testing::Gram;
using testing::Matrix;
using testing::RandomMatrix;

void ExpectSame(const QuantizedWeight& got, const QuantizedWeight& alone) {
  EXPECT_EQ(got.status, alone.status);
  EXPECT_EQ(got.status_detail, alone.status_detail);
  EXPECT_EQ(got.codes, alone.codes);
  EXPECT_EQ(got.scale, alone.scale);
  EXPECT_EQ(got.zero, alone.zero);
  EXPECT_EQ(got.dequantized, alone.dequantized);
  EXPECT_EQ(got.order, alone.order);
  EXPECT_EQ(got.damp, alone.damp);
  EXPECT_EQ(got.damp_value, alone.damp_value);
  EXPECT_EQ(got.loss, alone.loss);
  EXPECT_EQ(got.loss_damped, alone.loss_damped);
  EXPECT_EQ(got.rtn_loss, alone.rtn_loss);
  EXPECT_EQ(got.output_energy, alone.output_energy);
  EXPECT_EQ(got.dead_columns, alone.dead_columns);
  EXPECT_EQ(got.duplicate_columns, alone.duplicate_columns);
  EXPECT_EQ(got.channel_scale, alone.channel_scale);
  EXPECT_EQ(got.search_losses, alone.search_losses);
  EXPECT_EQ(got.clipped_groups, alone.clipped_groups);
  EXPECT_EQ(got.outlier_columns, alone.outlier_columns);
}

// Neighbours differ in one field that decides a grid or a factor.
std::vector<QuantizerSpec> ManySpecs() {
  std::vector<QuantizerSpec> specs = DefaultQuantizers();
  const auto add = [&specs](auto change) {
    for (QuantizationMethod method : {QuantizationMethod::kRtn, QuantizationMethod::kGptq}) {
      QuantizerSpec spec{.method = method};
      change(spec);
      specs.push_back(spec);
    }
  };
  add([](QuantizerSpec& s) { s.group_size = 32; });
  add([](QuantizerSpec& s) { s.symmetric = false; });
  add([](QuantizerSpec& s) { s.scale_dtype = ScaleDtype::kFloat16; });
  add([](QuantizerSpec& s) { s.narrow_range = true; });
  add([](QuantizerSpec& s) { s.min_scale = 0.3; });
  add([](QuantizerSpec& s) {
    s.scale_dtype = ScaleDtype::kFloat16;
    s.round_scale_last = s.method == QuantizationMethod::kRtn;
  });
  add([](QuantizerSpec& s) { s.clip = ClipSearch::kMse; });
  for (const double value : {2.0, 3.0}) {
    add([value](QuantizerSpec& s) {
      s.clip = ClipSearch::kStd;
      s.clip_value = value;
    });
    add([value](QuantizerSpec& s) {
      s.clip = ClipSearch::kPercentile;
      s.clip_value = 90 + value;
    });
  }
  add([](QuantizerSpec& s) { s.order = QuantizationOrder::kNone; });
  add([](QuantizerSpec& s) { s.damp = 0.02; });
  add([](QuantizerSpec& s) { s.min_tokens_ratio = 1e6; });  // RTN stands in
  add([](QuantizerSpec& s) { s.baselines = false; });
  for (QuantizationMethod method : testing::kAllMethods) specs.push_back(testing::SpecOf(method));
  return specs;
}

void ExpectTheResultsOfQuantize(const Matrix& weight, const GramStatistics* statistics,
                                const std::vector<QuantizerSpec>& specs) {
  // There and back: each is first and last once.
  std::vector<QuantizerSpec> calls = specs;
  calls.insert(calls.end(), specs.rbegin(), specs.rend());
  LayerQuantizer layer(weight.view(), statistics);
  for (const QuantizerSpec& spec : calls) {
    SCOPED_TRACE(Describe(spec));
    const absl::StatusOr<QuantizedWeight> alone = Quantize(weight.view(), statistics, spec);
    const absl::StatusOr<QuantizedWeight> got = layer.Quantize(spec);
    ASSERT_EQ(got.status(), alone.status());
    if (got.ok()) ExpectSame(*got, *alone);
  }
}

TEST(LayerQuantizer, GivesTheBitsOfQuantizeInAnyOrder) {
  const GramStatistics statistics = Gram(CorrelatedInputs(300, 130, 1));
  ExpectTheResultsOfQuantize(RandomMatrix(70, 130, 2), &statistics, ManySpecs());
}

// GPTQ fits its grids without the columns of dead inputs, RTN with them.
TEST(LayerQuantizer, TellsGridsWithDeadColumnsApart) {
  Matrix inputs = CorrelatedInputs(300, 130, 3);
  for (int64_t r = 0; r < inputs.rows; ++r) inputs.at(r, 17) = inputs.at(r, 99) = 0;
  Matrix weight = RandomMatrix(70, 130, 4);
  for (int64_t r = 0; r < weight.rows; ++r) weight.at(r, 17) = 20;
  const GramStatistics statistics = Gram(inputs);
  ExpectTheResultsOfQuantize(weight, &statistics, ManySpecs());
  LayerQuantizer layer(weight.view(), &statistics);
  const auto rtn_loss = [&](QuantizationMethod method) {
    return layer.Quantize({.method = method})->rtn_loss.value();
  };
  EXPECT_GT(rtn_loss(QuantizationMethod::kRtn), 2 * rtn_loss(QuantizationMethod::kGptq));
}

TEST(LayerQuantizer, GivesTheBitsOfQuantizeIfHIsNotAHessian) {
  std::vector<double> h(64 * 64, 0.0);
  for (size_t i = 0; i < 64; ++i) h[i * 64 + i] = i % 2 == 0 ? 1 : 0.5;
  h[1] = h[64] = 0.75;  // one negative eigenvalue, that a larger damp lifts
  const GramStatistics lifted = testing::WithHessian(h);
  h[1] = h[64] = 1e6;  // that none does
  const GramStatistics hopeless = testing::WithHessian(h);
  std::vector<QuantizerSpec> specs = ManySpecs();
  for (QuantizerSpec& spec : specs) {
    if (spec.min_tokens_ratio < 1) spec.min_tokens_ratio = 0;
    if (spec.method == QuantizationMethod::kLlmInt8) spec.outlier_threshold = 0;
  }
  const Matrix weight = RandomMatrix(40, 64, 5);
  const QuantizerSpec gptq{.min_tokens_ratio = 0};
  EXPECT_EQ(Quantize(weight.view(), &lifted, gptq)->status, LayerStatus::kDamped);
  EXPECT_EQ(Quantize(weight.view(), &hopeless, gptq)->status, LayerStatus::kRtnFallback);
  ExpectTheResultsOfQuantize(weight, &lifted, specs);
  ExpectTheResultsOfQuantize(weight, &hopeless, specs);
}

TEST(LayerQuantizer, WorksWithoutStatisticsAndOnBadData) {
  ExpectTheResultsOfQuantize(RandomMatrix(40, 64, 6), nullptr, ManySpecs());
  ExpectTheResultsOfQuantize(Matrix(0, 64), nullptr, ManySpecs());
  Matrix weight = RandomMatrix(40, 64, 7);
  weight.at(3, 5) = std::nanf("");
  const GramStatistics statistics = Gram(CorrelatedInputs(100, 64, 8));
  ExpectTheResultsOfQuantize(weight, &statistics, ManySpecs());
  GramStatistics no_magnitudes = statistics;
  no_magnitudes.abs_sum[9] = std::nan("");
  ExpectTheResultsOfQuantize(RandomMatrix(40, 64, 9), &no_magnitudes, ManySpecs());
}

// The pacer looks at its clock at every checkpoint: work that is not done leaves none.
class CountLooks final : public Clock {
 public:
  std::chrono::nanoseconds Monotonic() const override {
    ++looks_;
    return std::chrono::nanoseconds(0);
  }
  double UnixSeconds() const override { return 0; }
  void SleepFor(std::chrono::nanoseconds, const std::atomic<bool>&) override {}
  int Take() { return std::exchange(looks_, 0); }

 private:
  mutable int looks_ = 0;
};

TEST(LayerQuantizer, ComputesWhatIsSharedOnce) {
  const Matrix weight = RandomMatrix(600, 520, 10);
  const GramStatistics statistics = Gram(CorrelatedInputs(600, 520, 11));
  CountLooks clock;
  ExecutionContext context;
  context.pacer = Pacer(0.5, &clock);
  const auto looks = [&](LayerQuantizer& layer, const QuantizerSpec& spec) {
    EXPECT_TRUE(layer.Quantize(spec, context).ok());
    return clock.Take();
  };
  const QuantizerSpec rtn{.method = QuantizationMethod::kRtn};
  const QuantizerSpec gptq;
  const QuantizerSpec bare{.baselines = false};
  LayerQuantizer layer(weight.view(), &statistics);
  const int first_rtn = looks(layer, rtn);
  const int first_gptq = looks(layer, gptq);
  LayerQuantizer other(weight.view(), &statistics);
  const int first_bare = looks(other, bare);
  // Neither energy nor RTN's loss, which are RTN's, nor what every call begins with.
  EXPECT_LT(first_gptq, first_bare);
  // Nor the factor; at other bits, all but RTN's loss.
  const int second_gptq = looks(layer, gptq);
  EXPECT_LT(second_gptq, first_gptq);
  const int other_bits = looks(layer, {.bits = 3});
  EXPECT_GT(other_bits, second_gptq);
  EXPECT_EQ(looks(layer, {.bits = 3, .baselines = false}), second_gptq);
  EXPECT_LT(looks(layer, rtn), first_rtn);
}

TEST(LayerQuantizer, ReservesTheFactorItKeeps) {
  const Matrix weight = RandomMatrix(30, 140, 12);
  const GramStatistics statistics = Gram(CorrelatedInputs(200, 140, 13));
  ExecutionContext context;
  {
    LayerQuantizer layer(weight.view(), &statistics);
    ASSERT_TRUE(layer.Quantize({.method = QuantizationMethod::kRtn}, context).ok());
    EXPECT_EQ(context.bytes->used(), 0);
    ASSERT_TRUE(layer.Quantize({}, context).ok());
    EXPECT_EQ(context.bytes->used(), internal::FeedbackMatrix::Bytes(140));
    ASSERT_TRUE(layer.Quantize({.damp = 0.5}, context).ok());
    EXPECT_EQ(context.bytes->used(), internal::FeedbackMatrix::Bytes(140));
    // Another holder of the same reservation.
    const LayerQuantizer moved = std::move(layer);
    EXPECT_EQ(context.bytes->used(), internal::FeedbackMatrix::Bytes(140));
  }
  EXPECT_EQ(context.bytes->used(), 0);
}

// The least budget, to 1 KiB, in which `run` succeeds.
template <class Run>
int64_t LeastBudget(const Run& run) {
  int64_t low = 0;
  int64_t high = int64_t{1} << 30;
  while (high - low > 1024) {
    const int64_t middle = (low + high) / 2;
    ExecutionContext context;
    context.bytes = std::make_shared<ByteBudget>(middle);
    (run(context) ? high : low) = middle;
  }
  return high;
}

TEST(LayerQuantizer, GivesTheFactorUpIfAnotherCallNeedsTheRoom) {
  // With many rows, AWQ with clipping needs more memory than GPTQ.
  const Matrix weight = RandomMatrix(4000, 40, 14);
  const GramStatistics statistics = Gram(CorrelatedInputs(200, 40, 15));
  const QuantizerSpec awq{.method = QuantizationMethod::kAwq, .clip = ClipSearch::kMse};
  const int64_t alone = LeastBudget([&](const ExecutionContext& context) {
    return Quantize(weight.view(), &statistics, awq, context).ok();
  });
  ASSERT_GT(alone, LeastBudget([&](const ExecutionContext& context) {
              return Quantize(weight.view(), &statistics, {}, context).ok();
            }));
  ExecutionContext context;
  context.bytes = std::make_shared<ByteBudget>(alone);
  LayerQuantizer layer(weight.view(), &statistics);
  ASSERT_TRUE(layer.Quantize({}, context).ok());
  EXPECT_GT(context.bytes->used(), 0);
  EXPECT_TRUE(layer.Quantize(awq, context).ok());
  EXPECT_EQ(context.bytes->used(), 0);
}

TEST(LayerQuantizer, GoesOnAfterItWasCancelled) {
  const Matrix weight = RandomMatrix(30, 140, 16);
  const GramStatistics statistics = Gram(CorrelatedInputs(200, 140, 17));
  const absl::StatusOr<QuantizedWeight> alone = Quantize(weight.view(), &statistics, {});
  LayerQuantizer layer(weight.view(), &statistics);
  int looks = 0;
  for (;; ++looks) {
    ExecutionContext context;
    testing::CancelAt clock(context.cancel, looks);
    context.pacer = Pacer(0.5, &clock);
    const absl::StatusOr<QuantizedWeight> got = layer.Quantize({}, context);
    if (got.ok()) {
      ExpectSame(*got, *alone);
      break;
    }
    ASSERT_EQ(got.status().code(), absl::StatusCode::kCancelled) << "look " << looks;
  }
  EXPECT_GE(looks, 5);
}

}  // namespace layer_quantizer_test
}  // namespace ptqwatch
