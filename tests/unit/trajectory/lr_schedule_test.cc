#include "trajectory/lr_schedule.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace lr_schedule_test {

using ::testing::HasSubstr;

LrSchedule Parsed(const std::string& expression) {
  const auto schedule = ParseLrSchedule(expression);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  return schedule.value_or(LrSchedule());
}

TEST(LrSchedule, OfWsdHasThreeParts) {
  const LrSchedule schedule = Parsed("wsd:peak=2e-4,warmup=2000,decay_start=10000,end=20000");
  EXPECT_EQ(schedule.RateAt(0), 0);
  EXPECT_DOUBLE_EQ(schedule.RateAt(500), 5e-5);
  EXPECT_DOUBLE_EQ(schedule.RateAt(2000), 2e-4);
  EXPECT_DOUBLE_EQ(schedule.RateAt(10000), 2e-4);
  EXPECT_DOUBLE_EQ(schedule.RateAt(15000), 1e-4);
  EXPECT_EQ(schedule.RateAt(20000), 0);
  EXPECT_EQ(schedule.RateAt(30000), 0);
}

TEST(LrSchedule, HasTheShapeOfItsDecay) {
  const auto at = [](const std::string& shape, int64_t step) {
    return Parsed("wsd:peak=1,decay_start=100,end=200,final=0.2,shape=" + shape).RateAt(step);
  };
  EXPECT_DOUBLE_EQ(at("linear", 125), 0.8);
  EXPECT_DOUBLE_EQ(at("cosine", 125), 0.2 + 0.4 * (1 + std::sqrt(0.5)));
  EXPECT_DOUBLE_EQ(at("1-sqrt", 125), 0.6);
  EXPECT_DOUBLE_EQ(at("1-sqrt", 200), 0.2);
}

TEST(LrSchedule, OfCosineAndLinearDecaysFromTheWarmUpOn) {
  const LrSchedule cosine = Parsed("cosine:peak=3e-4,warmup=100,end=1100,final=3e-5");
  EXPECT_DOUBLE_EQ(cosine.RateAt(50), 1.5e-4);
  EXPECT_DOUBLE_EQ(cosine.RateAt(600), 1.65e-4);
  EXPECT_DOUBLE_EQ(cosine.RateAt(1100), 3e-5);
  EXPECT_DOUBLE_EQ(Parsed("linear:peak=1,end=10").RateAt(4), 0.6);
  EXPECT_DOUBLE_EQ(Parsed("constant:peak=0.5,warmup=10").RateAt(1'000'000), 0.5);
}

TEST(LrSchedule, OfCosineHasAMiddleAndAFloor) {
  const LrSchedule stretched = Parsed("cosine:peak=1,warmup=100,middle=200,end=500,final=0.2");
  EXPECT_DOUBLE_EQ(stretched.RateAt(150), 0.6 + 0.4 * std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(stretched.RateAt(200), 0.6);
  EXPECT_DOUBLE_EQ(stretched.RateAt(350), 0.6 - 0.4 * std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(stretched.RateAt(500), 0.2);
  const LrSchedule floored = Parsed("cosine:peak=1,warmup=100,end=500,floor=0.3");
  EXPECT_DOUBLE_EQ(floored.RateAt(10), 0.1);
  EXPECT_DOUBLE_EQ(floored.RateAt(300), 0.5);
  EXPECT_DOUBLE_EQ(floored.RateAt(400), 0.3);
  EXPECT_DOUBLE_EQ(floored.RateAt(600), 0.3);
}

TEST(ParseLrSchedule, NamesKeyAndValueOfAMistake) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"", "unknown kind ''"},
      {"wsp:peak=1", "unknown kind 'wsp'; known are wsd, cosine, linear, constant"},
      {"wsd", "wsd needs peak="},
      {"wsd:peak=1,decay_start=5", "wsd needs end="},
      {"cosine:peak=1,end=5,shape=linear", "unknown key 'shape'; cosine has peak, end, warmup"},
      {"constant:peak=1,peak=2", "peak is given twice"},
      {"constant:peak", "peak has no value"},
      {"constant:peak=fast", "peak is 'fast'"},
      {"constant:peak=-1", "peak is '-1'"},
      {"constant:peak=0", "peak is 0"},
      {"constant:peak=1,warmup=1.5", "warmup is '1.5'"},
      {"linear:peak=1,end=5,final=2", "final is 2"},
      {"linear:peak=1,end=0", "end is 0"},
      {"cosine:peak=1,end=5,floor=2", "floor is 2"},
      {"cosine:peak=1,end=5,warmup=2,middle=2", "middle is 2"},
      {"cosine:peak=1,end=5,middle=5", "middle is 5"},
      {"linear:peak=1,end=5,floor=0.1", "unknown key 'floor'"},
      {"wsd:peak=1,warmup=9,decay_start=5,end=10", "decay_start is 5"},
      {"wsd:peak=1,decay_start=5,end=5", "end is 5"},
      {"wsd:peak=1,decay_start=5,end=9,shape=round", "shape is 'round'"},
  };
  for (const auto& [expression, part] : mistakes) {
    const absl::Status status = ParseLrSchedule(expression).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << expression;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part)) << expression;
  }
}

TEST(LrSchedules, AreByBranch) {
  const auto schedules = LrSchedules::Parse({"constant:peak=1", "stage2-a=linear:peak=0.5,end=10"});
  ASSERT_TRUE(schedules.ok()) << schedules.status();
  EXPECT_EQ(schedules->Of("")->RateAt(5), 1);
  EXPECT_EQ(schedules->Of("stage1")->RateAt(5), 1);
  EXPECT_EQ(schedules->Of("stage2-a")->RateAt(5), 0.25);
  EXPECT_EQ(LrSchedules().Of(""), nullptr);
  EXPECT_EQ(LrSchedules::Parse({"a=constant:peak=1"})->Of("b"), nullptr);
  EXPECT_FALSE(LrSchedules::Parse({"constant:peak=1", "constant:peak=2"}).ok());
}

TEST(LrSchedules, OfARecipeServeItsBranchesAlone) {
  const auto schedules = LrSchedules::Parse({"pythia-160m", "anneal=constant:peak=1"});
  ASSERT_TRUE(schedules.ok()) << schedules.status();
  EXPECT_EQ(schedules->Of("")->RateAt(1430), 6e-4);
  EXPECT_EQ(schedules->Of("anneal")->RateAt(5), 1);
  EXPECT_EQ(schedules->Of("stage1"), nullptr);
  EXPECT_FALSE(LrSchedules::Parse({"pythia-160m", "constant:peak=1"}).ok());
}

TEST(LrSchedules, NameTheNearestRecipeFirst) {
  const absl::Status status = LrSchedules::Parse({"pythia-150m"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("unknown run 'pythia-150m'; known are pythia-160m, pythia-70m, "));
  EXPECT_THAT(std::string(LrSchedules::Parse({"wsd"}).status().message()),
              HasSubstr("wsd needs peak="));
}

}  // namespace lr_schedule_test
}  // namespace ptqwatch::internal
