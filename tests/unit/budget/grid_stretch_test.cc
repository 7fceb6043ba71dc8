#include "budget/grid_stretch.h"

#include <gmock/gmock.h>

namespace ptqwatch::internal {
namespace grid_stretch_test {

using ::testing::HasSubstr;

TEST(GridStretch, RoundsTheDensityDownToAPowerOfTwo) {
  EXPECT_EQ(GridStretch::Density(1), 1);
  EXPECT_EQ(GridStretch::Density(4), 4);
  EXPECT_EQ(GridStretch::Density(7), 4);
  EXPECT_EQ(GridStretch(1).stretch(), 0);
  EXPECT_EQ(GridStretch(4).stretch(), 2) << "regular snapshots alone";
}

TEST(GridStretch, IsChosenByTheFirstSnapshot) {
  GridStretch cheap(4);
  EXPECT_TRUE(cheap.Learn(1, 100));
  EXPECT_EQ(cheap.stretch(), 0) << "25 s apart in a decay";
  GridStretch medium(4);
  EXPECT_TRUE(medium.Learn(30, 100));
  EXPECT_EQ(medium.stretch(), 1) << "50 s apart";
  GridStretch costly(4);
  const auto changed = costly.Learn(300, 100);
  ASSERT_TRUE(changed);
  EXPECT_EQ(costly.stretch(), 5) << "every 8th regular one";
  EXPECT_THAT(*changed, HasSubstr("8 intervals of the schedule apart"));
}

TEST(GridStretch, IsKeptUntilItIsWrongRepeatedly) {
  GridStretch grid(1);
  grid.Learn(50, 100);
  ASSERT_EQ(grid.stretch(), 0);
  EXPECT_FALSE(grid.Learn(120, 100));
  EXPECT_FALSE(grid.Learn(90, 100));
  EXPECT_FALSE(grid.Learn(120, 100));
  EXPECT_TRUE(grid.Learn(120, 100));
  EXPECT_EQ(grid.stretch(), 1);
  for (int i = 0; i < 7; ++i) EXPECT_FALSE(grid.Learn(40, 100)) << i;
  EXPECT_FALSE(grid.Learn(60, 100)) << "more than a quarter of 200 s";
  for (int i = 0; i < 7; ++i) EXPECT_FALSE(grid.Learn(40, 100)) << i;
  EXPECT_TRUE(grid.Learn(40, 100));
  EXPECT_EQ(grid.stretch(), 0);
}

TEST(GridStretch, WaitsUntilTheTimeOfAStepIsKnown) {
  GridStretch grid(2);
  EXPECT_FALSE(grid.Learn(1000, 0));
  EXPECT_EQ(grid.stretch(), 1);
}

TEST(GridStretch, HasAnEnd) {
  GridStretch grid(1);
  grid.Learn(1e300, 1e-9);
  EXPECT_LE(grid.stretch(), 30);
}

}  // namespace grid_stretch_test
}  // namespace ptqwatch::internal
