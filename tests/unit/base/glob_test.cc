#include "base/glob.h"

#include <gtest/gtest.h>

#include <string>

namespace ptqwatch::internal {
namespace glob_test {

TEST(GlobMatch, MatchesTheWholeText) {
  EXPECT_TRUE(GlobMatch("", ""));
  EXPECT_TRUE(GlobMatch("*", ""));
  EXPECT_TRUE(GlobMatch("blocks.*.weight", "blocks.0.attn.qkv.weight"));
  EXPECT_TRUE(GlobMatch("blocks.?.mlp*", "blocks.7.mlp.up"));
  EXPECT_TRUE(GlobMatch("*a*b*c", "xxaxxbxbxc"));
  EXPECT_FALSE(GlobMatch("blocks.?.mlp", "blocks.12.mlp"));
  EXPECT_FALSE(GlobMatch("weight", "blocks.weight"));
  EXPECT_FALSE(GlobMatch("*a*b", "ba"));
  EXPECT_FALSE(GlobMatch("", "x"));
}

TEST(GlobMatch, IsNotExponential) {
  const std::string text(2000, 'a');
  EXPECT_FALSE(GlobMatch("*a*a*a*a*a*a*a*a*a*a*b", text));
}

}  // namespace glob_test
}  // namespace ptqwatch::internal
