#include "capture/layer_selection.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ptqwatch::internal {
namespace layer_selection_test {

TEST(WhyNotSelected, ExcludeWinsAndAliasesCount) {
  LayerSelection selection;
  EXPECT_EQ(WhyNotSelected(selection, {"a"}), "");
  selection.include = {"blocks.*"};
  EXPECT_EQ(WhyNotSelected(selection, {"blocks.1"}), "");
  EXPECT_EQ(WhyNotSelected(selection, {"head", "blocks.tied"}), "");
  EXPECT_NE(WhyNotSelected(selection, {"head"}), "");
  selection.exclude = {"*.tied"};
  EXPECT_NE(WhyNotSelected(selection, {"head", "blocks.tied"}).find("*.tied"), std::string::npos);
}

TEST(SpecForLayer, TakesTheFirstOverrideOfTheSameMethodAndBits) {
  QuantizerSpec gptq3;
  gptq3.bits = 3;
  QuantizerSpec fine = gptq3;
  fine.group_size = 32;
  QuantizerSpec other = gptq3;
  other.bits = 8;
  const SpecOverrides overrides = {{"*.down.*", other}, {"*.down.*", fine}};
  EXPECT_EQ(SpecForLayer(overrides, gptq3, "blocks.0.down.weight").group_size, 32);
  EXPECT_EQ(SpecForLayer(overrides, gptq3, "blocks.0.up.weight").group_size, 128);
}

TEST(SpecForLayer, GivesTheNamedQuantizerAnySpec) {
  const QuantizerSpec gptq6{.bits = 6};
  const QuantizerSpec gptq3{.bits = 3};
  const QuantizerSpec five{.bits = 5};
  const QuantizerSpec rtn8{.method = QuantizationMethod::kRtn, .bits = 8};
  const QuantizerSpec fine{.bits = 6, .group_size = 32};
  const SpecOverrides overrides = {
      {"*.mlp.*", five, "gptq6"}, {"head", rtn8, "gptq6"}, {"*", rtn8, "gptq3"}, {"*", fine}};
  EXPECT_EQ(SpecForLayer(overrides, gptq6, "a.mlp.up"), five);
  EXPECT_EQ(SpecForLayer(overrides, gptq6, "head"), rtn8);
  EXPECT_EQ(SpecForLayer(overrides, gptq6, "a.attn.q"), fine);
  EXPECT_EQ(SpecForLayer(overrides, gptq3, "a.mlp.up"), rtn8);
}

TEST(ValidateOverrides, NamesTheMistake) {
  const std::vector<QuantizerSpec> quantizers = {{.bits = 6}, {.bits = 3}};
  const QuantizerSpec good;
  QuantizerSpec bad;
  bad.damp = -1;
  const auto refusal = [&](const SpecOverrides& overrides) {
    const absl::Status status = ValidateOverrides(overrides, quantizers);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_TRUE(ValidateOverrides({{"*", good, "gptq3"}, {"*", good}}, quantizers).ok());
  EXPECT_EQ(refusal({{"*", good, "gptq3"}, {"*.up", good, "gptq5"}}),
            "overrides['*.up'].of = 'gptq5': is none of the quantizers, gptq6, gptq3");
  EXPECT_EQ(refusal({{"*.up", bad, "gptq3"}}),
            "overrides['*.up']: QuantizerSpec.damp is -1; it must be finite and not negative");
}

TEST(SpecForLayer, LeavesOtherFormatsAlone) {
  QuantizerSpec fine;
  fine.group_size = 32;
  QuantizerSpec nvfp4;
  nvfp4.format = QuantizationFormat::kNvfp4;
  EXPECT_EQ(SpecForLayer({{"*", fine}}, nvfp4, "a"), nvfp4);
  EXPECT_EQ(SpecForLayer({{"*", fine}}, QuantizerSpec(), "a"), fine);
}

}  // namespace layer_selection_test
TEST(CheckOverridesMatch, NamesAGlobThatMatchesNothing) {
  const std::vector<std::string> layers = {"a.mlp.weight", "head.weight"};
  const SpecOverrides right = {{"*.mlp.*", {.bits = 3}}, {"head.weight", {.bits = 8}}};
  EXPECT_TRUE(CheckOverridesMatch(right, layers).ok());
  const SpecOverrides wrong = {{"*.mlp.*", {.bits = 3}}, {"head", {.bits = 8}}};
  EXPECT_EQ(CheckOverridesMatch(wrong, layers),
            absl::InvalidArgumentError("overrides['head']: matches no layer that is quantized"));
}

}  // namespace ptqwatch::internal
