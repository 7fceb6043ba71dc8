#include "trajectory/checkpoint_name.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace checkpoint_name_test {

TEST(ParseCheckpointName, ReadsTheNamesOfPublishedRuns) {
  const std::vector<std::pair<std::string, CheckpointName>> names = {
      {"step512", {"", 512, {}}},  // Pythia
      {"step0", {"", 0, {}}},
      {"step50000-tokens210B", {"", 50'000, 210'000'000'000}},        // OLMo, Apertus
      {"stage1-step1000-tokens5B", {"stage1", 1000, 5'000'000'000}},  // OLMo 2
      {"stage2-ingredient1-step11931-tokens50B", {"stage2-ingredient1", 11'931, 50'000'000'000}},
      {"stage1-step337000", {"stage1", 337'000, {}}},  // OLMo 3
      {"stage1-step-40000", {"stage1", 40'000, {}}},   // SmolLM3
      {"ckpt_000", {"", 0, {}}},                       // Amber
      {"ckpt_359", {"", 359, {}}},
      {"checkpoint-500", {"", 500, {}}},    // Trainer
      {"global_step1000", {"", 1000, {}}},  // DeepSpeed
      {"iter_0005000", {"", 5000, {}}},     // Megatron
      {"step10-tokens2.5M", {"", 10, 2'500'000}},
      {"step10_tokens300", {"", 10, 300}},
      {"step10-tokens1T", {"", 10, 1'000'000'000'000}},
      {"a-step-b-step7", {"a-step-b", 7, {}}},
  };
  for (const auto& [name, expected] : names) EXPECT_EQ(ParseCheckpointName(name), expected) << name;
}

TEST(ParseCheckpointName, RefusesNamesWithoutAStep) {
  for (const std::string name :
       {"", "main", "step", "step-", "512", "footstep5", "-step5", "step5-unsharded",
        "step5-tokens", "step5-tokensB", "step5-tokens1X", "step5-tokens1.2.3B", "step5x",
        "step99999999999999999999", "step1-tokens99999999999T", "checkpoint"}) {
    EXPECT_EQ(ParseCheckpointName(name), std::nullopt) << name;
  }
}

}  // namespace checkpoint_name_test
}  // namespace ptqwatch::internal
