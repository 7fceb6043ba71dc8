#include "base/nearest_name.h"

#include <gtest/gtest.h>

#include <array>

namespace ptqwatch::internal {
namespace nearest_name_test {

TEST(NearestName, TakesTheFewestEdits) {
  constexpr std::array<std::string_view, 4> names = {"blocks.0.qkv", "blocks.1.qkv", "head", "wte"};
  EXPECT_EQ(NearestName("block.1.qkv", names), "blocks.1.qkv");
  EXPECT_EQ(NearestName("haed", names), "head");
  EXPECT_EQ(NearestName("wpe", names), "wte");
  EXPECT_EQ(NearestName("wte", names), "wte");
}

TEST(NearestName, TakesTheFirstOfSeveral) {
  constexpr std::array<std::string_view, 2> names = {"w1", "w2"};
  EXPECT_EQ(NearestName("w", names), "w1");
}

TEST(NearestName, OfNoneIsEmpty) {
  EXPECT_EQ(NearestName("w", {}), "");
  constexpr std::array<std::string_view, 1> unnamed = {""};
  EXPECT_EQ(NearestName("w", unnamed), "");
}

}  // namespace nearest_name_test
}  // namespace ptqwatch::internal
