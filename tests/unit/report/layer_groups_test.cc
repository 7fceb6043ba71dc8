#include "report/layer_groups.h"

#include <gmock/gmock.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/strings.h"

namespace ptqwatch::internal {
namespace layer_groups_test {

using ::testing::ElementsAre;
using ::testing::SizeIs;

TEST(StackOf, IsTheParameterOfAPart) {
  EXPECT_EQ(StackOf("moe.w1[3]"), "moe.w1");
  EXPECT_EQ(StackOf("moe.w13[11][0:64]"), "moe.w13[0:64]");
  EXPECT_EQ(StackOf("w[2][5]"), "w[2]");
  EXPECT_EQ(StackOf("qkv[0:64]"), "") << "a slice of a matrix";
}

TEST(StackOf, DiffersInTheNumberOfTheExpertAlone) {
  EXPECT_EQ(StackOf("layers.3.mlp.experts.17.up_proj.weight"),
            "layers.3.mlp.experts.*.up_proj.weight");
  EXPECT_EQ(StackOf("h.0.local_experts.2.w1"), "h.0.local_experts.*.w1");
  EXPECT_EQ(StackOf("experts.5"), "experts.*");
  EXPECT_EQ(StackOf("mlp.experts.expert_12.wi.weight"), "mlp.experts.expert_*.wi.weight");
  EXPECT_EQ(StackOf("mlp.experts.linear_fc1.weight17"), "mlp.experts.linear_fc1.weight*");
  for (const char* name : {"", "expert", "experts.", "[3]", "x[", "x[]", "layers.12.up.weight",
                           "h.1.shared_expert.up.weight", "h.1.experts.w1", "expert_gate.weight",
                           "action_expert.0.weight", "experts.wi_0.weight", "experts.w13[0:64]"}) {
    EXPECT_EQ(StackOf(name), "") << name;
  }
}

std::vector<GroupedLayers> Group(const std::vector<std::string>& names) {
  return GroupLayers(names.size(), [&](size_t i) { return std::string_view(names[i]); });
}

TEST(GroupLayers, KeepsTheOrderOfFirstMembers) {
  std::vector<std::string> names = {"in"};
  for (int i = 0; i < 8; ++i) {
    names.push_back(StrCat("experts.", i, ".up"));
    names.push_back(StrCat("experts.", i, ".down"));
  }
  for (int i = 0; i < 7; ++i) names.push_back(StrCat("few.experts.", i, ".up"));
  const std::vector<GroupedLayers> groups = Group(names);
  ASSERT_THAT(groups, SizeIs(3 + 7));
  EXPECT_EQ(groups[0].name, "in");
  EXPECT_EQ(groups[1].name, "experts.*.up");
  EXPECT_THAT(groups[1].members, ElementsAre(1, 3, 5, 7, 9, 11, 13, 15));
  EXPECT_EQ(groups[2].name, "experts.*.down");
  EXPECT_EQ(groups[3].name, "few.experts.0.up") << "too few for a row";
  EXPECT_FALSE(groups[3].stacked());
}

TEST(GroupLayers, NamesTheLargestOfAStack) {
  const std::vector<double> values = {1, NAN, 7, 2, 9, 7, INFINITY, 0};
  const GroupedLayers group{.name = "stack", .members = {0, 1, 2, 3, 4, 5, 6, 7}};
  EXPECT_THAT(LargestMembers(group, [&](size_t i) { return values[i]; }), ElementsAre(4, 2, 5));
}

TEST(GroupSkipped, AddsUpEachReason) {
  std::vector<SkippedLayer> skipped = {{"norm", "a vector", 4}};
  for (int i = 0; i < 9; ++i) {
    skipped.push_back({StrCat("w[", i, "]"), i < 2 ? "met no input" : "excluded", 10});
  }
  EXPECT_THAT(GroupSkipped(skipped),
              ElementsAre(SkippedLayer{"norm", "a vector", 4}, SkippedLayer{"w", "excluded", 70},
                          SkippedLayer{"w", "met no input", 20}));
}

}  // namespace layer_groups_test
}  // namespace ptqwatch::internal
