#include "ptqwatch/offline/shadow_cooldown.h"

#include <gmock/gmock.h>

#include <set>
#include <vector>

#include "ptqwatch/subject.h"
#include "support/tiny_trainer.h"

namespace ptqwatch {
namespace shadow_cooldown_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TinyTrainer;

ShadowCooldownOptions Options() {
  ShadowCooldownOptions options;
  options.cooldown.decay_steps = 16;
  options.cooldown.settle_steps = 2;
  options.learning_rate = 1e-2;
  options.quantizers = {{.method = QuantizationMethod::kRtn, .bits = 3, .group_size = 8}};
  return options;
}

TEST(ShadowCooldown, TrainsThroughEachLengthAndLeavesTheModelAlone) {
  TinyTrainer trainer;
  trainer.Step();
  std::vector<CooldownStep> steps;
  trainer.OnTrainStep([&](const CooldownStep& step) { steps.push_back(step); });
  const std::string before = trainer.Bytes();
  ShadowCooldownOptions options = Options();
  int64_t done = -1;
  options.progress = [&](int64_t steps_done, int64_t steps_all) {
    EXPECT_GE(steps_done, done);
    EXPECT_EQ(steps_all, (2 + 2) + (2 + 4) + (2 + 8));
    done = steps_done;
  };
  const auto end = RunShadowCooldown(*trainer.MakeSubject(), options);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(trainer.Bytes(), before);
  EXPECT_EQ(end->simulated_steps, 20);
  EXPECT_EQ(done, 20);
  ASSERT_EQ(steps.size(), 20u);
  std::vector<double> rates;
  std::set<int64_t> batches;
  for (const CooldownStep& step : steps) {
    EXPECT_GE(step.batch, 0);
    batches.insert(step.batch);
  }
  EXPECT_EQ(batches.size(), steps.size());
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(steps[i].index, static_cast<int64_t>(i));
    EXPECT_EQ(steps[i].steps, 4);
    rates.push_back(steps[i].learning_rate);
  }
  EXPECT_THAT(rates, ElementsAre(1e-2, 1e-2, 1e-2, 0.5e-2));
}

TEST(ShadowCooldown, IsTheSameEveryTime) {
  std::vector<PredictedEnd> ends;
  for (int i = 0; i < 2; ++i) {
    TinyTrainer trainer;
    const auto end = RunShadowCooldown(*trainer.MakeSubject(), Options());
    ASSERT_TRUE(end.ok()) << end.status();
    ends.push_back(*end);
    ends.back().seconds = 0;
    for (SimulatedDecay& decay : ends.back().decays) decay.seconds = 0;
  }
  EXPECT_EQ(ends[0], ends[1]);
  EXPECT_EQ(ends[0].status, ProbeStatus::kOk);
}

TEST(ShadowCooldown, NamesTheOptionThatIsWrong) {
  TinyTrainer trainer;
  const auto message = [&](const ShadowCooldownOptions& options) {
    const auto end = RunShadowCooldown(*trainer.MakeSubject(), options);
    EXPECT_EQ(end.status().code(), absl::StatusCode::kInvalidArgument) << end.status();
    return std::string(end.status().message());
  };
  ShadowCooldownOptions options = Options();
  options.cooldown.decay_steps = 0;
  EXPECT_THAT(message(options), HasSubstr("cooldown.decay_steps = 0"));
  options = Options();
  options.learning_rate = 0;
  EXPECT_THAT(message(options), HasSubstr("learning_rate = 0"));
  options = Options();
  options.cooldown.lengths = {0.5, 0.25};
  EXPECT_THAT(message(options), HasSubstr("cooldown.lengths = 0.25"));
  options = Options();
  options.cooldown.final_ratio = 1;
  EXPECT_THAT(message(options), HasSubstr("cooldown.final_ratio = 1"));
  options = Options();
  options.quantizers.clear();
  EXPECT_THAT(message(options), HasSubstr("quantizers"));
}

TEST(ShadowCooldown, SaysWhatIsMissing) {
  TinyTrainer trainer;
  const auto end = RunShadowCooldown(*trainer.MakeSubject(testing::Fault::kNoTrainStep), Options());
  EXPECT_EQ(end.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(end.status().message()), HasSubstr("train_step is not set"));
}

TEST(ShadowCooldown, IsCancelledBetweenSteps) {
  TinyTrainer trainer;
  ExecutionContext context;
  trainer.OnTrainStep([&](const CooldownStep& step) {
    if (step.index == 1) context.cancel.Cancel();
  });
  const auto end = RunShadowCooldown(*trainer.MakeSubject(), Options(), context);
  EXPECT_EQ(end.status().code(), absl::StatusCode::kCancelled);
}

}  // namespace shadow_cooldown_test
}  // namespace ptqwatch
