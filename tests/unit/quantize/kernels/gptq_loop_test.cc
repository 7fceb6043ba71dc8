#include "quantize/kernels/gptq_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "quantize/kernels/gram.h"
#include "unit/quantize/reference.h"

namespace ptqwatch {
namespace gptq_loop_test {

using testing::CorrelatedInputs;
using testing::Matrix;
using testing::RandomMatrix;

// Sizes at which every loop is worth five threads.
constexpr int64_t kRows = 300;
constexpr int64_t kCols = 410;
constexpr int64_t kTokens = 500;

ExecutionContext WithThreads(int threads) {
  ExecutionContext context;
  context.threads = threads;
  return context;
}

struct Everything {
  GramStatistics statistics;
  double trace = 0;
  std::vector<double> factor;
  internal::GptqErrors errors;
  std::vector<uint8_t> codes;
};

struct Layer {
  Matrix inputs = CorrelatedInputs(kTokens, kCols, 1);
  Matrix weight = RandomMatrix(kRows, kCols, 2);
};

// All engines, one after the other, until one fails.
absl::Status RunAll(const Layer& layer, const ExecutionContext& context, Everything* out) {
  GramAccumulator gram(kCols);
  if (absl::Status status = gram.Add(layer.inputs.view(), context); !status.ok()) return status;
  out->statistics = gram.Take();

  const auto row = [&](int64_t r, float*) { return layer.weight.values.data() + r * kCols; };
  absl::StatusOr<double> trace = internal::QuadraticTrace(
      kRows, kCols, internal::SharedRowSource(row), out->statistics.sum.data(), context);
  if (!trace.ok()) return trace.status();
  out->trace = *trace;

  std::vector<int64_t> order;
  std::vector<double> diagonal;
  for (int64_t i = 0; i < kCols; ++i) {
    order.push_back((i * 7) % kCols);
    diagonal.push_back(1.01 * out->statistics.sum[static_cast<size_t>(i * kCols + i)]);
  }
  absl::StatusOr<internal::UpperFactor> factor =
      internal::FactorizeUpper({.values = out->statistics.sum.data(),
                                .size = kCols,
                                .order = order.data(),
                                .scale = 1,
                                .diagonal = diagonal.data()},
                               context);
  if (!factor.ok()) return factor.status();
  for (int64_t i = 0; i < kCols; ++i) {
    for (int64_t j = i; j < kCols; ++j) out->factor.push_back(factor->At(i, j));
  }

  internal::Grid grid = internal::EmptyGrid(kRows, kCols, QuantizerSpec{});
  for (int64_t r = 0; r < kRows; ++r) {
    internal::FitRow(layer.weight.values.data() + r * kCols, r, &grid);
  }
  out->codes.resize(static_cast<size_t>(kRows * kCols));
  absl::StatusOr<internal::FeedbackMatrix> feedback =
      internal::FeedbackMatrix::Pack(*factor, order, context);
  if (!feedback.ok()) return feedback.status();
  absl::StatusOr<internal::GptqErrors> errors =
      internal::RunGptq(layer.weight.view(), grid, *feedback, out->codes.data(), context);
  if (!errors.ok()) return errors.status();
  out->errors = *errors;
  return absl::OkStatus();
}

void ExpectSameBits(const std::vector<int>& thread_counts) {
  const Layer layer;
  Everything one;
  ExecutionContext alone = WithThreads(1);
  ASSERT_TRUE(RunAll(layer, alone, &one).ok());
  for (int threads : thread_counts) {
    ExecutionContext context = WithThreads(threads);
    Everything many;
    ASSERT_TRUE(RunAll(layer, context, &many).ok());
    EXPECT_EQ(many.statistics.sum, one.statistics.sum) << threads;
    EXPECT_EQ(many.trace, one.trace) << threads;
    EXPECT_EQ(many.factor, one.factor) << threads;
    EXPECT_EQ(many.codes, one.codes) << threads;
    EXPECT_EQ(many.errors.damped_loss, one.errors.damped_loss) << threads;
    EXPECT_EQ(many.errors.squared_norm, one.errors.squared_norm) << threads;
  }
}

TEST(Threads, DoNotChangeABit) { ExpectSameBits({2, 3, 5}); }

TEST(Threads, DoNotChangeABitOnAnyTarget) {
  for (int64_t target : testing::UsableTargets()) {
    const testing::OnlyTarget only(target);
    ExpectSameBits({3});
  }
}

TEST(Threads, DoNotChangeAQuantizedWeight) {
  const Layer layer;
  const GramStatistics statistics = testing::Gram(layer.inputs);
  ExecutionContext alone = WithThreads(1);
  const absl::StatusOr<QuantizedWeight> one =
      Quantize(layer.weight.view(), &statistics, QuantizerSpec{}, alone);
  ASSERT_TRUE(one.ok()) << one.status();
  for (int threads : {2, 3, 5}) {
    ExecutionContext context = WithThreads(threads);
    const absl::StatusOr<QuantizedWeight> many =
        Quantize(layer.weight.view(), &statistics, QuantizerSpec{}, context);
    ASSERT_TRUE(many.ok()) << many.status();
    EXPECT_EQ(many->codes, one->codes);
    EXPECT_EQ(many->dequantized, one->dequantized);
    EXPECT_EQ(many->loss, one->loss);
    EXPECT_EQ(many->loss_damped, one->loss_damped);
    EXPECT_EQ(many->rtn_loss, one->rtn_loss);
    EXPECT_EQ(many->output_energy, one->output_energy);
  }
}

TEST(Gptq, LeavesOutBaselinesUnlessAskedFor) {
  const Layer layer;
  const GramStatistics statistics = testing::Gram(layer.inputs);
  ExecutionContext context;
  QuantizerSpec spec;
  const absl::StatusOr<QuantizedWeight> with =
      Quantize(layer.weight.view(), &statistics, spec, context);
  spec.baselines = false;
  const absl::StatusOr<QuantizedWeight> without =
      Quantize(layer.weight.view(), &statistics, spec, context);
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_TRUE(with->rtn_loss && with->output_energy);
  EXPECT_FALSE(without->rtn_loss || without->output_energy);
  EXPECT_EQ(without->codes, with->codes);
  EXPECT_EQ(without->loss, with->loss);
}

// Time stands still; counts how often it was asked for, and acts on one of these occasions.
class CountingClock final : public Clock {
 public:
  std::chrono::nanoseconds Monotonic() const override {
    if (++looks_ == act_at_) act_();
    return late_ ? std::chrono::hours(2) : std::chrono::hours(0);
  }
  double UnixSeconds() const override { return 0; }
  void SleepFor(std::chrono::nanoseconds, const std::atomic<bool>&) override {}

  void ActAt(int64_t look, std::function<void()> act) {
    act_at_ = look;
    act_ = std::move(act);
  }
  void MakeLate() { late_ = true; }
  int64_t looks() const { return looks_; }

 private:
  mutable std::atomic<int64_t> looks_{0};
  std::atomic<bool> late_{false};
  int64_t act_at_ = -1;
  std::function<void()> act_;
};

ExecutionContext Watched(CountingClock* clock, int threads) {
  ExecutionContext context = WithThreads(threads);
  context.clock = clock;
  context.deadline = std::chrono::hours(1);
  return context;
}

// At 1 GFLOP/s, a tenth of a core's speed, this is a look every 20 ms.
TEST(Threads, LookAtTheContextEvery20MegaFlop) {
  const Layer layer;
  const double squares = static_cast<double>(kCols * kCols);
  const double flop = squares * (kTokens + 2 * kRows + kCols / 3.0);
  for (int threads : {1, 3}) {
    CountingClock clock;
    ExecutionContext context = Watched(&clock, threads);
    Everything out;
    ASSERT_TRUE(RunAll(layer, context, &out).ok());
    EXPECT_GT(static_cast<double>(clock.looks()), flop / 2e7) << threads;
  }
}

TEST(Threads, StopWhereverTheyAreCancelled) {
  const Layer layer;
  for (int threads : {1, 3}) {
    CountingClock whole;
    ExecutionContext undisturbed = Watched(&whole, threads);
    Everything out;
    ASSERT_TRUE(RunAll(layer, undisturbed, &out).ok());
    for (int64_t look = 1; look < whole.looks(); look += 1 + whole.looks() / 20) {
      CountingClock clock;
      ExecutionContext context = Watched(&clock, threads);
      clock.ActAt(look, [&context] { context.cancel.Cancel(); });
      Everything partial;
      ASSERT_EQ(RunAll(layer, context, &partial).code(), absl::StatusCode::kCancelled) << look;
      // The token is looked at before the clock: only those already on their way still ask.
      EXPECT_LE(clock.looks(), look + threads) << look;
    }
  }
}

TEST(Threads, StopAtTheDeadline) {
  const Layer layer;
  for (int threads : {1, 3}) {
    for (int64_t look : {1, 10, 40}) {
      CountingClock clock;
      ExecutionContext context = Watched(&clock, threads);
      clock.ActAt(look, [&clock] { clock.MakeLate(); });
      Everything partial;
      EXPECT_EQ(RunAll(layer, context, &partial).code(), absl::StatusCode::kDeadlineExceeded);
    }
  }
}

TEST(Threads, AreAtLeastOne) {
  const Layer layer;
  for (int threads : {0, -1}) {
    ExecutionContext context = WithThreads(threads);
    GramAccumulator gram(kCols);
    EXPECT_EQ(gram.Add(layer.inputs.view(), context).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(gram.tokens(), 0);
    QuantizerSpec rtn;
    rtn.method = QuantizationMethod::kRtn;
    EXPECT_EQ(Quantize(layer.weight.view(), nullptr, rtn, context).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace gptq_loop_test
}  // namespace ptqwatch
