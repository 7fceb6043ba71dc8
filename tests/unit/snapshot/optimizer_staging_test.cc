#include "snapshot/optimizer_staging.h"

#include <gmock/gmock.h>

#include <memory>
#include <stdexcept>

#include "ATen/ops/arange.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"
#include "ptqwatch/function_subject.h"
#include "staging/slot_filler.h"
#include "support/fake_clock.h"

namespace ptqwatch::internal {
namespace optimizer_staging_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct OptimizerStagingTest : ::testing::Test {
  OptimizerStagingTest() {
    const at::Tensor tied = at::ones({4, 5});
    live = {{"w", tied, true},
            {"u", at::ones({2, 3}), true},
            {"tied", tied, true},
            {"b", at::ones({2}), false}};
    view.kind = OptimizerKind::kAdamW;
    view.parameters = {{"w", 0.1, 0.01, 3, at::full({4, 5}, 2.0)},
                       {"u", 0.2, 0.02, 3, at::full({2, 3}, 3.0)}};
    subject = MakeFunctionSubject({.live = live, .optimizer = [this] {
                                     if (throws) throw std::runtime_error("no optimizer today");
                                     return passes ? std::optional(view) : std::nullopt;
                                   }});
    table = *MakeTensorTable(live);
  }
  absl::StatusOr<OptimizerStaging> Create() {
    return OptimizerStaging::Create(read, table, {0, 1});
  }
  OptimizerState Fill(OptimizerStaging& staging) {
    OptimizerState state;
    staging.Fill(stream, state);
    EXPECT_TRUE(state.problem.empty() || !state.view.has_value());
    return state;
  }
  std::string Error() { return std::string(Create().status().message()); }

  std::vector<NamedTensor> live;
  OptimizerView view;
  bool passes = true;
  bool throws = false;
  std::unique_ptr<Subject> subject;
  const OptimizerStaging::Read read = [this] { return subject->Optimizer(); };
  TensorTable table;
  CpuStream stream;
};

TEST_F(OptimizerStagingTest, CopiesNothingIfTheBudgetForbidsItAndSaysWhy) {
  constexpr int64_t kBoth = 2 * 4 * (4 * 5 + 2 * 3);  // staged and while measuring
  auto bytes = std::make_shared<ByteBudget>(kBoth - 1);
  auto left_out = OptimizerStaging::Create(read, table, {0, 1}, bytes, bytes);
  ASSERT_TRUE(left_out.ok()) << left_out.status();
  EXPECT_EQ(left_out->bytes(), 0);
  EXPECT_EQ(bytes->used(), 0);
  EXPECT_THAT(left_out->description(), HasSubstr("adamw, left out"));
  const OptimizerState state = Fill(*left_out);
  EXPECT_FALSE(state.view);
  EXPECT_THAT(state.problem, HasSubstr("budget"));
  bytes->SetLimit(kBoth);
  auto fits = OptimizerStaging::Create(read, table, {0, 1}, bytes, bytes);
  ASSERT_TRUE(fits.ok()) << fits.status();
  EXPECT_EQ(bytes->used(), kBoth);
  EXPECT_TRUE(Fill(*fits).view);
}

TEST_F(OptimizerStagingTest, HoldsEachCopyAgainstItsOwnDevice) {
  constexpr int64_t kOne = 4 * (4 * 5 + 2 * 3);
  auto staged = std::make_shared<ByteBudget>(kOne);
  auto measured = std::make_shared<ByteBudget>(kOne - 1);
  const auto left_out = OptimizerStaging::Create(read, table, {0, 1}, staged, measured);
  ASSERT_TRUE(left_out.ok()) << left_out.status();
  EXPECT_THAT(left_out->description(), HasSubstr("adamw, left out"));
  measured->SetLimit(kOne);
  const auto fits = OptimizerStaging::Create(read, table, {0, 1}, staged, measured);
  ASSERT_TRUE(fits.ok()) << fits.status();
  EXPECT_EQ(staged->used(), kOne);
  EXPECT_EQ(measured->used(), kOne);
}

TEST_F(OptimizerStagingTest, KeepsTheMomentsOfTheStepWhileTrainingGoesOn) {
  auto staging = Create();
  ASSERT_TRUE(staging.ok()) << staging.status();
  EXPECT_EQ(staging->bytes(), 4 * (20 + 6));
  EXPECT_EQ(staging->description(), "adamw, second moments of 26 parameters");
  const OptimizerState state = Fill(*staging);
  view.parameters[0].second_moment.fill_(9);
  ASSERT_TRUE(state.view) << state.problem;
  ASSERT_EQ(state.view->parameters.size(), 2u);
  EXPECT_EQ(state.view->parameters[1].name, "u");
  EXPECT_EQ(state.view->parameters[1].learning_rate, 0.2);
  EXPECT_EQ(state.view->parameters[1].weight_decay, 0.02);
  EXPECT_EQ(state.view->parameters[1].steps, 3);
  EXPECT_TRUE(at::equal(state.view->parameters[0].second_moment, at::full({4, 5}, 2.0)));
  EXPECT_TRUE(at::equal(state.view->parameters[1].second_moment, at::full({2, 3}, 3.0)));
}

TEST_F(OptimizerStagingTest, KeepsOnlyWhatIsAskedForUnderItsCanonicalName) {
  view.parameters[0].name = "tied";
  auto staging = OptimizerStaging::Create(read, table, {0});
  ASSERT_TRUE(staging.ok()) << staging.status();
  EXPECT_EQ(staging->bytes(), 4 * 20);
  const OptimizerState state = Fill(*staging);
  ASSERT_TRUE(state.view) << state.problem;
  ASSERT_EQ(state.view->parameters.size(), 1u);
  EXPECT_EQ(state.view->parameters[0].name, "w");
}

TEST_F(OptimizerStagingTest, CopiesMomentsOfAnyLayoutAndDtype) {
  const at::Tensor transposed = at::arange(20, at::kDouble).view({5, 4}).t();
  view.parameters[0].second_moment = transposed;
  auto staging = Create();
  ASSERT_TRUE(staging.ok()) << staging.status();
  const OptimizerState state = Fill(*staging);
  ASSERT_TRUE(state.view) << state.problem;
  EXPECT_TRUE(at::equal(state.view->parameters[0].second_moment, transposed));
}

TEST_F(OptimizerStagingTest, TakesMomentsThatAppearAfterTheFirstStep) {
  const at::Tensor moment = view.parameters[0].second_moment;
  view.parameters[0].second_moment = at::Tensor();
  auto staging = Create();
  ASSERT_TRUE(staging.ok()) << staging.status();
  EXPECT_FALSE(Fill(*staging).view->parameters[0].second_moment.defined());
  view.parameters[0].second_moment = moment;
  const OptimizerState state = Fill(*staging);
  ASSERT_TRUE(state.view) << state.problem;
  EXPECT_TRUE(at::equal(state.view->parameters[0].second_moment, moment));
}

// Some optimizers keep moments of half-precision parameters in single precision.
TEST_F(OptimizerStagingTest, SaysWhatToDoIfMomentsAppearInAnotherDtypeThanTheParameters) {
  view.parameters[0].second_moment = at::Tensor();
  auto staging = Create();
  ASSERT_TRUE(staging.ok()) << staging.status();
  view.parameters[0].second_moment = at::zeros({4, 5}, at::kDouble);
  EXPECT_EQ(Fill(*staging).problem,
            "the optimizer's second moment of 'w' is Double, and the monitor was created for "
            "Float: create it once the optimizer has its moments, after its first step");
}

TEST_F(OptimizerStagingTest, NeedsNoMemoryForSgdOrWithoutAnOptimizer) {
  view.kind = OptimizerKind::kSgd;
  auto staging = Create();
  ASSERT_TRUE(staging.ok()) << staging.status();
  EXPECT_EQ(staging->bytes(), 0);
  EXPECT_EQ(staging->description(), "sgd");
  EXPECT_TRUE(Fill(*staging).view);
  view.kind = OptimizerKind::kMuon;
  staging = Create();
  ASSERT_TRUE(staging.ok()) << staging.status();
  EXPECT_EQ(staging->bytes(), 0);
  EXPECT_EQ(staging->description(), "muon");
  passes = false;
  staging = Create();
  ASSERT_TRUE(staging.ok()) << staging.status();
  EXPECT_THAT(staging->description(), IsEmpty());
  const OptimizerState state = Fill(*staging);
  EXPECT_FALSE(state.view);
  EXPECT_THAT(state.problem, IsEmpty());
}

TEST_F(OptimizerStagingTest, RefusesWhatDoesNotFitTheModel) {
  view.parameters[1].name = "v";
  EXPECT_THAT(Error(), HasSubstr("'v' is not one of the model's"));
  view.parameters[1] = {"u", 0.1, 0, 3, at::zeros({3, 2})};
  EXPECT_THAT(Error(), HasSubstr("second moment of 'u' is [3, 2]"));
  view.parameters[1].second_moment = at::zeros({2, 3}, at::kLong);
  EXPECT_THAT(Error(), HasSubstr("Long on cpu; floating point on cpu is needed"));
  view.parameters.pop_back();
  view.beta1 = 1;
  EXPECT_EQ(Error(), "the optimizer's beta1 = 1 is not in [0, 1)");
  view.beta1 = 0.9;
  view.epsilon = -1;
  EXPECT_THAT(Error(), HasSubstr("epsilon = -1"));
  view.kind = OptimizerKind::kSgd;
  view.momentum = 2;
  EXPECT_THAT(Error(), HasSubstr("momentum = 2"));
  throws = true;
  EXPECT_EQ(Error(), "the optimizer function threw: no optimizer today");
}

TEST_F(OptimizerStagingTest, SaysWhatNoLongerFitsAndGoesOnAfterwards) {
  auto staging = Create();
  ASSERT_TRUE(staging.ok()) << staging.status();
  const OptimizerView good = view;
  view.parameters[1].second_moment = at::zeros({7});
  EXPECT_THAT(Fill(*staging).problem, HasSubstr("second moment of 'u' is [7]"));
  view.parameters[1].second_moment = at::zeros({2, 3}, at::kDouble);
  EXPECT_THAT(Fill(*staging).problem,
              HasSubstr("'u' is Double, and the monitor was created for Float"));
  view = good;
  throws = true;
  EXPECT_THAT(Fill(*staging).problem, HasSubstr("no optimizer today"));
  throws = false;
  EXPECT_TRUE(Fill(*staging).view);
}

TEST_F(OptimizerStagingTest, SaysThatAnOptimizerCameTooLate) {
  passes = false;
  auto staging = Create();
  ASSERT_TRUE(staging.ok()) << staging.status();
  passes = true;
  EXPECT_THAT(Fill(*staging).problem, HasSubstr("make the optimizer first"));
}

TEST_F(OptimizerStagingTest, IsNeverTheEndOfASnapshot) {
  auto optimizer = Create();
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  SlotPage page;
  Slot slot(&page, MakeSlotTensors(table));
  SlotFiller filler(table, &slot, *DeviceStream::Create(at::kCPU, at::kCPU), *std::move(optimizer));
  testing::FakeClock clock;
  throws = true;
  ASSERT_EQ(filler.TryFill(*subject, {}, clock).result, SnapshotResult::kTaken);
  const Snapshot* snapshot = slot.BeginLoading();
  ASSERT_NE(snapshot, nullptr);
  EXPECT_FALSE(snapshot->optimizer.view);
  EXPECT_THAT(snapshot->optimizer.problem, HasSubstr("no optimizer today"));
  EXPECT_TRUE(at::equal(snapshot->tensors[1], at::ones({2, 3})));
  page.Release();
  throws = false;
  ASSERT_EQ(filler.TryFill(*subject, {}, clock).result, SnapshotResult::kTaken);
  EXPECT_TRUE(slot.BeginLoading()->optimizer.view);
  // Nothing of the optimizer's own memory is kept.
  EXPECT_EQ(view.parameters[0].second_moment.use_count(), 1u);
}

}  // namespace optimizer_staging_test
}  // namespace ptqwatch::internal
