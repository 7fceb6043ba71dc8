#include "monitor_setup.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "final_slice.h"

namespace ptqwatch::examples {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Tried(std::vector<std::string> methods, std::vector<int> bits,
                               int group_size = 64) {
  TrainerFlags flags;
  flags.methods = std::move(methods);
  flags.bits = std::move(bits);
  flags.group_size = group_size;
  const MonitorOptions options = MakeMonitorOptions(flags, 100);
  EXPECT_TRUE(Validate(options).ok()) << Validate(options);
  std::vector<std::string> tried;
  for (const QuantizerSpec& spec : options.quantizers) {
    tried.push_back(std::string(ToString(spec.method)) + " " + std::to_string(spec.bits));
  }
  return tried;
}

TEST(MakeMonitorOptions, TriesEveryMethodAtEveryBitWidth) {
  EXPECT_THAT(Tried({"rtn", "awq"}, {3, 4}), ElementsAre("rtn 3", "rtn 4", "awq 3", "awq 4"));
  EXPECT_THAT(Tried({"gptq", "gptq"}, {4, 4}), ElementsAre("gptq 4"));
}

TEST(MakeMonitorOptions, TriesAMethodOfOneBitWidthOnce) {
  EXPECT_THAT(Tried({"llm_int8", "NF4", "rtn"}, {2, 3}, -1),
              ElementsAre("llm_int8 8", "nf4 4", "rtn 2", "rtn 3"));
  EXPECT_THAT(Tried({"LLM.int8", "nf4"}, {4, 8}), ElementsAre("llm_int8 8", "nf4 4"));
}

TEST(MakeMonitorOptions, TakesGroupsAndCalibration) {
  TrainerFlags flags;
  flags.group_size = 32;
  EXPECT_EQ(MakeMonitorOptions(flags, 100).quantizers[0].group_size, 32);
  EXPECT_EQ(MakeMonitorOptions(flags, 100).calibration_mode, CalibrationMode::kOneShot);
  flags.calibration = "sequential";
  EXPECT_EQ(MakeMonitorOptions(flags, 100).calibration_mode, CalibrationMode::kSequential);
}

absl::Status Refusal(const std::string& slice, int64_t steps) {
  TrainerFlags flags;
  flags.slice = slice;
  flags.every = 50;
  flags.methods = {"gptq", "nf4"};
  return FinalSlice::Plan(flags, steps).status();
}

TEST(FinalSlice, TakesAQuantizerOfTheRun) {
  for (const char* name : {"gptq3", "gptq4", "nf4", ""}) {
    EXPECT_TRUE(Refusal(name, 100).ok()) << Refusal(name, 100);
  }
  for (const char* name : {"gptq", "gptq5", "rtn3", "nf44"}) {
    EXPECT_THAT(std::string(Refusal(name, 100).message()),
                HasSubstr(absl::StrCat("'", name, "' is no quantizer of this run, which has ",
                                       "gptq3, gptq4, nf4")));
  }
}

TEST(FinalSlice, TakesTwoSnapshots) {
  EXPECT_TRUE(Refusal("gptq3", 51).ok());
  for (int64_t steps : {1, 49, 50}) {
    EXPECT_THAT(std::string(Refusal("gptq3", steps).message()), HasSubstr("has one snapshot"));
  }
}

}  // namespace
}  // namespace ptqwatch::examples
