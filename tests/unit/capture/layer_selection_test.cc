#include "capture/layer_selection.h"

#include <gtest/gtest.h>

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

TEST(SpecForLayer, LeavesOtherFormatsAlone) {
  QuantizerSpec fine;
  fine.group_size = 32;
  QuantizerSpec nvfp4;
  nvfp4.format = QuantizationFormat::kNvfp4;
  EXPECT_EQ(SpecForLayer({{"*", fine}}, nvfp4, "a"), nvfp4);
  EXPECT_EQ(SpecForLayer({{"*", fine}}, QuantizerSpec(), "a"), fine);
}

}  // namespace layer_selection_test
}  // namespace ptqwatch::internal
