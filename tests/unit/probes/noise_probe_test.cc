#include "probes/noise_probe.h"

#include <gmock/gmock.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/linear.h"
#include "unit/curvature/tanh_net.h"

namespace ptqwatch::internal {
namespace noise_probe_test {

using ::testing::HasSubstr;
using ::testing::Not;
using Net = testing::TanhNet;

// Losses 1 + |A x + B z - y|^2 / 2 of examples at their minimum, in 16 batches of 16: quadratic in
// A and B, with tr(H_A) = 10 mean |x|^2 and tr(H_B) = 10 mean |z|^2.
struct LeastSquares : Net {
  LeastSquares() {
    live = {{"a", testing::Waves({10, 12}, 0.5, 1), true},
            {"b", testing::Waves({10, 6}, 1.5, 2), true}};
    losses = [](const TensorMap& p, const Batch& batch) -> LossValues {
      const at::Tensor error =
          at::linear(batch[0], p.at("a")) + at::linear(batch[1], p.at("b")) - batch[2];
      return 1 + error.pow(2).sum(1) / 2;
    };
    batches.clear();
    for (int64_t i = 0; i < 16; ++i) {
      const at::Tensor x = testing::Waves({16, 12}, 1, 1000 * i);
      const at::Tensor z = testing::Waves({16, 6}, 0.7, 1000 * i + 300);
      batches.push_back({x, z, at::linear(x, live[0].tensor) + at::linear(z, live[1].tensor)});
    }
    options.layers.output_head = true;
    options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 4, .group_size = -1}};
    options.curvature.enabled = false;
    options.averaging.enabled = false;
    // All batches.
    options.relative_stderr = 1e-9;
    options.absolute_stderr_ratio = 0;
  }
  // s^2 / 2 times the sum of mean(w^2) tr(H).
  double Expected() const {
    const auto mean_square = [](const at::Tensor& x) {
      return x.to(at::kDouble).pow(2).mean().item<double>();
    };
    double sum = 0;
    for (const Batch& batch : batches) {
      sum += mean_square(live[0].tensor) * 10 * 12 * mean_square(batch[0]) +
             mean_square(live[1].tensor) * 10 * 6 * mean_square(batch[1]);
    }
    return options.noise_relative_norm * options.noise_relative_norm / 2 * sum / 16;
  }
};

NoiseReport Measure(Net& net) {
  const auto suite = net.Measure();
  EXPECT_TRUE(suite.ok()) << suite.status();
  const Report report = Net::Run(**suite);
  EXPECT_TRUE(report.noise);
  return report.noise.value_or(NoiseReport());
}

TEST(NoiseProbe, GivesHalfTheTraceTimesTheVarianceOnAQuadratic) {
  LeastSquares net;
  const double expected = net.Expected();
  constexpr int kSeeds = 40;
  double sum = 0;
  double squares = 0;
  double variances = 0;
  int within = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    net.options.seed = static_cast<uint64_t>(seed);
    const NoiseReport report = Measure(net);
    ASSERT_EQ(report.status, ProbeStatus::kOk) << report.status_detail;
    EXPECT_EQ(report.draws, 8);
    EXPECT_EQ(report.probe_tokens, 256);
    const double off = *report.delta_nats - expected;
    sum += off;
    squares += off * off;
    variances += *report.delta_stderr_nats * *report.delta_stderr_nats;
    // 95 % of Student's t with 7 degrees of freedom.
    within += std::abs(off) <= 2.365 * *report.delta_stderr_nats;
  }
  EXPECT_LT(std::abs(sum / kSeeds), 3 * std::sqrt(squares) / kSeeds);
  EXPECT_LT(std::sqrt(squares / kSeeds), 0.3 * expected);
  EXPECT_GE(within, 34);
  // The stated errors are as large as the real ones, which lack those of other tokens.
  EXPECT_GT(variances / squares, 0.6);
  EXPECT_LT(variances / squares, 2);
}

TEST(NoiseProbe, IsHalfTheWeightedTraceTimesTheSquaredNorm) {
  LeastSquares net;
  net.options.curvature.enabled = true;
  net.options.curvature.trace_relative_stderr = 0.02;
  const auto suite = net.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  const Report report = Net::Run(**suite);
  ASSERT_TRUE(report.noise && report.curvature);
  ASSERT_EQ(report.curvature->status, ProbeStatus::kOk) << report.curvature->status_detail;
  const double predicted = 0.1 * 0.1 / 2 * *report.curvature->weighted_trace;
  EXPECT_NEAR(predicted, net.Expected(), 0.2 * net.Expected());
  EXPECT_LT(std::abs(*report.noise->delta_nats - predicted), 4 * *report.noise->delta_stderr_nats);
  EXPECT_LT(*report.noise->delta_stderr_nats, 0.3 * predicted);
}

TEST(NoiseProbe, RepeatsItsNumbersAndLeavesTheWeights) {
  LeastSquares net;
  const auto suite = net.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  const Report first = Net::Run(**suite);
  const Report second = Net::Run(**suite);
  EXPECT_EQ(first.noise, second.noise);
  EXPECT_EQ(first.quantization, second.quantization);
  EXPECT_EQ(first.cost.count("noise"), 1u);
}

TEST(NoiseProbe, UsesTheBatchesOfTheComparison) {
  LeastSquares net;
  const auto suite = net.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  const Report report =
      testing::MeasureReport(**suite, nullptr, {.plan = Plan{.probe_batches = 2}});
  EXPECT_EQ(report.noise->draws, 4);
  EXPECT_EQ(report.noise->probe_tokens, 32);
  EXPECT_TRUE(report.noise->delta_stderr_nats);
}

TEST(NoiseProbe, ALossThatIsNotFiniteIsAStatus) {
  LeastSquares net;
  net.options.noise_relative_norm = 1e30;
  const NoiseReport report = Measure(net);
  EXPECT_EQ(report.status, ProbeStatus::kNonFinite);
  EXPECT_FALSE(report.delta_nats);
}

TEST(NoiseProbe, CanBeSwitchedOff) {
  LeastSquares net;
  {
    const auto suite = net.Measure();
    ASSERT_TRUE(suite.ok()) << suite.status();
    EXPECT_THAT(testing::DescribeProbes(**suite),
                HasSubstr("noise: of relative norm 0.1 in the quantized weights, 8 draws\n"));
    (*suite)->Disable("noise", "it failed");
    const Report report = Net::Run(**suite);
    EXPECT_EQ(report.noise->status, ProbeStatus::kDisabled);
    EXPECT_EQ(report.noise->status_detail, "it failed");
  }
  net.options.noise_relative_norm = 0;
  const auto suite = net.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  EXPECT_FALSE(Net::Run(**suite).noise);
  EXPECT_THAT(testing::DescribeProbes(**suite), Not(HasSubstr("noise")));
}

}  // namespace noise_probe_test
}  // namespace ptqwatch::internal
