#include "ptqwatch/offline/check_subject.h"

#include <gmock/gmock.h>

#include <memory>
#include <stdexcept>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/ones.h"
#include "ptqwatch/function_subject.h"
#include "ptqwatch/monitor.h"

namespace ptqwatch {
namespace check_subject_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

// One loss a sequence: the square of x w.
LossValues Squares(const TensorMap& tensors, const Batch& batch) {
  return at::matmul(batch[0], tensors.at("weight")).square().squeeze(1);
}

struct CheckSubjectTest : ::testing::Test {
  std::unique_ptr<Subject> Make(std::function<LossValues(const TensorMap&, const Batch&)> losses) {
    return MakeFunctionSubject(
        {.live = {{"weight", weight, true}}, .losses = std::move(losses), .probe = {batch}});
  }
  at::Tensor weight = at::ones({2, 1});
  const Batch batch = {at::arange(8, at::kFloat).view({4, 2})};
};

TEST_F(CheckSubjectTest, IsTheLossOfTheLiveWeights) {
  weight.fill_(0.5);
  const auto subject = Make(Squares);
  const absl::StatusOr<SubjectLoss> loss = CheckSubject(*subject, batch);
  ASSERT_TRUE(loss.ok()) << loss.status();
  // x w = 0.5, 2.5, 4.5, 6.5.
  EXPECT_DOUBLE_EQ(loss->loss_nats, (0.25 + 6.25 + 20.25 + 42.25) / 4);
  EXPECT_EQ(loss->units, 4);
  EXPECT_TRUE(loss->stderr_nats.has_value());
  EXPECT_FALSE(loss->accuracy_ratio.has_value());
  EXPECT_TRUE(at::equal(weight, at::ones({2, 1}) * 0.5));
}

TEST_F(CheckSubjectTest, OneMeanHasNoErrorBar) {
  const auto subject = Make([](const TensorMap& tensors, const Batch& x) {
    return LossValues(Squares(tensors, x).values.mean());
  });
  const absl::StatusOr<SubjectLoss> loss = CheckSubject(*subject, batch);
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_EQ(loss->units, 1);
  EXPECT_FALSE(loss->stderr_nats.has_value());
}

TEST_F(CheckSubjectTest, CountsWhatIsRight) {
  const auto subject = Make([](const TensorMap& tensors, const Batch& x) {
    LossValues losses = Squares(tensors, x);
    losses.correct = losses.values < 30;
    return losses;
  });
  EXPECT_EQ(CheckSubject(*subject, batch)->accuracy_ratio, 0.5);  // 1, 25, 81, 169
}

TEST_F(CheckSubjectTest, LeavesTheSubjectForAMonitorThatSeesLaterWeights) {
  auto subject = Make(Squares);
  ASSERT_TRUE(CheckSubject(*subject, batch).ok());
  ASSERT_TRUE(CheckSubject(*subject, batch).ok());
  weight.fill_(2);
  MonitorOptions options{.on_failure = OnFailure::kError, .schedule = {.every = 1}};
  options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 4, .group_size = 2}};
  options.layers.output_head = true;
  options.duty_cycle = 1.0;
  auto monitor = Monitor::Create(std::move(subject), options);
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  (*monitor)->OnStep({.step = 1, .learning_rate = 1e-2});
  ASSERT_TRUE((*monitor)->Finish(std::chrono::seconds(60)).ok());
  EXPECT_DOUBLE_EQ((*monitor)->latest()->report.probe_loss_nats.value(), 4 * 69.0);
}

TEST_F(CheckSubjectTest, SaysWhatTheClosureThrewAndAtWhichShapes) {
  const auto subject = Make([](const TensorMap&, const Batch&) -> LossValues {
    throw std::runtime_error("out of ideas");
  });
  const absl::Status status = CheckSubject(*subject, batch).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("losses threw: out of ideas"), HasSubstr("Float [4, 2]")));
}

}  // namespace check_subject_test
}  // namespace ptqwatch
