#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "ptqwatch/loss_slice.h"
#include "ptqwatch/status.h"

namespace ptqwatch {
namespace loss_slice_json_test {

LossSlice Sample() {
  LossSlice slice;
  slice.run_id = "run-\xFF";
  slice.fingerprint = "f00d";
  slice.step = 800;
  slice.previous_step = 700;
  slice.method = QuantizationMethod::kGptq;
  slice.bits = 3;
  slice.group_size = 64;
  slice.weight_norm = 12.5;
  slice.parameters = 1000;
  slice.batch_tokens = 4096;
  slice.current = {0, 0, 1.5};
  slice.previous = {0.25, 0, std::nan("")};
  slice.quantized = {0.125, 0.5, 1.75};
  slice.x = {-0.25, 0.5};
  slice.y = {-0.5, 1};
  slice.loss_nats = {{1, std::numeric_limits<double>::infinity()}, {std::nan(""), 4}};
  slice.loss_evaluations = 8;
  slice.seconds = 0.5;
  return slice;
}

TEST(LossSlice, JsonHasEveryValueAndNullForNonFiniteOnes) {
  const nlohmann::json json = nlohmann::json::parse(ToJson(Sample()));
  EXPECT_EQ(json.size(), 19u);
  EXPECT_EQ(json["schema_version"], 1);
  EXPECT_EQ(json["run_id"], "run-\xEF\xBF\xBD");
  EXPECT_EQ(json["step"], 800);
  EXPECT_EQ(json["previous_step"], 700);
  EXPECT_EQ(json["method"], "gptq");
  EXPECT_EQ(json["bits"], 3);
  EXPECT_EQ(json["group_size"], 64);
  EXPECT_EQ(json["weight_norm"], 12.5);
  EXPECT_EQ(json["batch_tokens"], 4096);
  EXPECT_EQ(json["current"], nlohmann::json({{"x", 0.0}, {"y", 0.0}, {"loss_nats", 1.5}}));
  EXPECT_TRUE(json["previous"]["loss_nats"].is_null());
  EXPECT_EQ(json["quantized"]["y"], 0.5);
  EXPECT_EQ(json["x"], nlohmann::json({-0.25, 0.5}));
  EXPECT_EQ(json["y"], nlohmann::json({-0.5, 1.0}));
  EXPECT_EQ(json["loss_nats"], nlohmann::json::parse("[[1.0, null], [null, 4.0]]"));
  EXPECT_EQ(json["loss_evaluations"], 8);
}

TEST(SliceState, HasNames) {
  EXPECT_EQ(ToString(SliceState::kNone), "none");
  EXPECT_EQ(ToString(SliceState::kWaitingForSecond), "waiting_for_second");
  EXPECT_EQ(ToString(SliceState::kFailed), "failed");
  EXPECT_EQ(ToString(static_cast<SliceState>(99)), "unknown");
}

}  // namespace loss_slice_json_test
}  // namespace ptqwatch
