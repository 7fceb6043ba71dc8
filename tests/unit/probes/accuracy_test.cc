// Accuracy with and without quantization, where the losses closure says which examples are right.

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/where.h"
#include "unit/curvature/tanh_net.h"

namespace ptqwatch::internal {
namespace accuracy_test {

using ::testing::HasSubstr;
using Net = testing::TanhNet;

class AccuracyTest : public ::testing::Test {
 protected:
  AccuracyTest() {
    net_.options.curvature.enabled = false;
    net_.options.averaging.enabled = false;
    net_.options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 3, .group_size = 8}};
    // All examples.
    net_.options.relative_stderr = 1e-9;
    net_.options.absolute_stderr_ratio = 0;
  }
  static at::Tensor Logits(const TensorMap& p, const Batch& b) {
    const at::Tensor h = at::linear(b[0], p.at("in.weight"), p.at("in.bias")).tanh();
    return at::linear(at::linear(h, p.at("mid.weight")).tanh(), p.at("out.weight"));
  }
  // `correct` gets the logits and the targets.
  void Answer(std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> correct) {
    net_.losses = [correct](const TensorMap& p, const Batch& b) -> LossValues {
      const at::Tensor logits = Logits(p, b);
      LossValues losses(at::cross_entropy_loss(logits, b[1], {}, at::Reduction::None));
      losses.correct = correct(logits, b[1]);
      return losses;
    };
  }
  static at::Tensor BestGuess(const at::Tensor& logits, const at::Tensor& targets) {
    return logits.argmax(-1) == targets;
  }
  // Right answers of all examples with these weights in place.
  static std::vector<double> Right(ProbeSuite& suite,
                                   const std::vector<Replica::Override>& weights) {
    std::vector<double> right;
    const auto lease = suite.session().replica().Use(weights);
    EXPECT_TRUE(lease.ok()) << lease.status();
    for (const Batch& batch : suite.session().probe()) {
      const at::Tensor correct =
          suite.session().replica().Losses(batch)->correct.to(at::kDouble).contiguous();
      const double* value = correct.const_data_ptr<double>();
      right.insert(right.end(), value, value + correct.numel());
    }
    return right;
  }
  void Refused(const std::string& why) {
    const absl::Status status = net_.Measure().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("LossValues::correct"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  }

  Net net_;
};

TEST_F(AccuracyTest, IsThatOfTheSameExamplesWithAndWithout) {
  Answer(BestGuess);
  const auto suite = net_.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  const auto measured = (*suite)->Measure({}, {});
  ASSERT_TRUE(measured.ok()) << measured.status();
  const Report report = AssembleReport({}, measured->results);
  const std::vector<double> full = Right(**suite, {});
  // Curvature needs the quantized weights, so with it they are in the result.
  net_.options.curvature.enabled = true;
  const auto keeping = net_.Measure();
  ASSERT_TRUE(keeping.ok()) << keeping.status();
  const auto kept = (*keeping)->Measure({}, {});
  ASSERT_TRUE(kept.ok()) << kept.status();
  const std::vector<double> quantized =
      Right(**keeping, std::get<QuantizationResult>(kept->results.at(0).value).weights.at(0));

  const double n = 300;
  double right = 0;
  double right_quantized = 0;
  for (size_t i = 0; i < full.size(); ++i) {
    right += full[i];
    right_quantized += quantized[i];
  }
  ASSERT_EQ(full.size(), 300u);
  ASSERT_LT(right, n);
  EXPECT_DOUBLE_EQ(*report.probe_accuracy_ratio, right / n);
  const double accuracy = right / n;
  EXPECT_NEAR(*report.probe_accuracy_stderr, std::sqrt(accuracy * (1 - accuracy) / (n - 1)), 1e-12);

  const QuantizationReport& entry = report.quantization.at(0);
  EXPECT_DOUBLE_EQ(*entry.accuracy_ratio, right_quantized / n);
  const double degradation = (right - right_quantized) / (n - right);
  EXPECT_NEAR(*entry.accuracy_degradation_ratio, degradation, 1e-12);
  double squares = 0;
  for (size_t i = 0; i < full.size(); ++i) {
    const double rest = full[i] - quantized[i] - degradation * (1 - full[i]);
    squares += rest * rest;
  }
  EXPECT_NEAR(*entry.accuracy_degradation_stderr, std::sqrt(n / (n - 1) * squares) / (n - right),
              1e-12);
}

TEST_F(AccuracyTest, IsAbsentIfTheClosureGivesNone) {
  const auto suite = net_.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  const Report report = Net::Run(**suite);
  EXPECT_FALSE(report.probe_accuracy_ratio);
  EXPECT_FALSE(report.probe_accuracy_stderr);
  EXPECT_FALSE(report.quantization.at(0).accuracy_ratio);
  EXPECT_FALSE(report.quantization.at(0).accuracy_degradation_ratio);
}

TEST_F(AccuracyTest, OfAPerfectModelHasNoDegradation) {
  Answer([](const at::Tensor&, const at::Tensor& targets) { return at::ones(targets.sizes()); });
  const auto suite = net_.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  const Report report = Net::Run(**suite);
  EXPECT_EQ(report.probe_accuracy_ratio, 1);
  EXPECT_EQ(report.probe_accuracy_stderr, 0);
  EXPECT_EQ(report.quantization.at(0).accuracy_ratio, 1);
  EXPECT_FALSE(report.quantization.at(0).accuracy_degradation_ratio);
  EXPECT_FALSE(report.quantization.at(0).accuracy_degradation_stderr);
}

TEST_F(AccuracyTest, LeavesOutExamplesThatAreNaN) {
  Answer([](const at::Tensor&, const at::Tensor& targets) {
    // Every fourth is no example; of the others a third is right.
    const at::Tensor which = targets.remainder(4);
    return at::where(which == 0, std::nan(""), (which == 1).to(at::kDouble));
  });
  const auto suite = net_.Measure();
  ASSERT_TRUE(suite.ok()) << suite.status();
  EXPECT_DOUBLE_EQ(*Net::Run(**suite).probe_accuracy_ratio, 1.0 / 3);
}

TEST_F(AccuracyTest, RefusesInvalidAnswers) {
  Answer([](const at::Tensor& logits, const at::Tensor&) { return logits.argmax(-1); });
  Refused("expected 0 (wrong) to 1 (right)");
  Answer([](const at::Tensor&, const at::Tensor&) { return at::ones({7}); });
  Refused("[7]");
}

}  // namespace accuracy_test
}  // namespace ptqwatch::internal
