#include "trajectory/trainer_state.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace trainer_state_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParseTrainerState, ReadsStepTokensAndRates) {
  const auto state = ParseTrainerState(R"({
    "global_step": 500, "num_input_tokens_seen": 8192000, "best_metric": null,
    "log_history": [
      {"step": 300, "learning_rate": 2e-4, "loss": 3.1},
      {"step": 100, "learning_rate": 1e-4, "loss": 4.0},
      {"step": 300, "eval_loss": 3.0},
      {"step": 500, "learning_rate": 0, "loss": 2.5},
      {"step": 600, "learning_rate": 9.0, "loss": 2.5},
      {"step": "x", "learning_rate": 9.0}, 7]})",
                                       "state");
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->step, 500);
  EXPECT_EQ(state->tokens, 8'192'000);
  EXPECT_THAT(state->rates, ElementsAre(LrChangePoint{100, 1e-4}, LrChangePoint{300, 2e-4},
                                        LrChangePoint{500, 0}));
}

// Python writes NaN, which is not JSON.
TEST(ParseTrainerState, ReadsNumbersThatAreNotFinite) {
  const auto state = ParseTrainerState(
      R"({"global_step": 2, "num_input_tokens_seen": 0, "log_history": [
        {"step": 1, "grad_norm": NaN, "note": "a \" NaN, -Infinity", "learning_rate": 0.5},
        {"step": 2, "loss": -Infinity, "learning_rate": NaN}]})",
      "state");
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_THAT(state->rates, ElementsAre(LrChangePoint{1, 0.5}));
  EXPECT_EQ(state->tokens, std::nullopt) << "0 says that they were not counted";
}

TEST(ParseTrainerState, NamesPathAndKeyOfAMistake) {
  const auto message = [](const std::string& text) {
    return std::string(ParseTrainerState(text, "runs/7").status().message());
  };
  EXPECT_THAT(message("[1"), HasSubstr("'runs/7' is not a JSON object"));
  EXPECT_THAT(message("{}"), HasSubstr("'runs/7' has no global_step"));
  EXPECT_THAT(message(R"({"global_step": -1})"), HasSubstr("global_step is '-1'"));
  EXPECT_THAT(message(R"({"global_step": "5"})"), HasSubstr("global_step"));
  EXPECT_THAT(message(R"({"global_step": 5, "num_input_tokens_seen": 1.5})"),
              HasSubstr("num_input_tokens_seen is '1.5'"));
}

}  // namespace trainer_state_test
}  // namespace ptqwatch::internal
