#include "sparkline.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace sparkline_test {

constexpr double kMost = std::numeric_limits<double>::max();

TEST(Sparkline, GoesFromTheLeastToTheGreatest) {
  EXPECT_EQ(Sparkline({0, 1, 2, 3, 4, 5, 6, 7}, 80, true), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(Sparkline({0, 1, 2, 3, 4, 5, 6, 7}, 80, false), "_.-=+*#@");
}

TEST(Sparkline, ShowsTheLastValuesOnTheirOwnScale) {
  EXPECT_EQ(Sparkline({1000, 1, 2}, 2, false), "_@");
  EXPECT_EQ(Sparkline({1, 2}, 0, false), "");
  EXPECT_EQ(Sparkline({}, 10, true), "");
}

TEST(Sparkline, LeavesOutWhatIsNotFinite) {
  EXPECT_EQ(Sparkline({NAN, 1, INFINITY, 2, -INFINITY}, 80, false), " _ @ ");
  EXPECT_EQ(Sparkline({NAN, NAN}, 80, true), "  ");
}

TEST(Sparkline, IsFlatIfAllAreEqualAndBearsTheLargestNumbers) {
  EXPECT_EQ(Sparkline({3, 3, 3}, 80, false), "___");
  EXPECT_EQ(Sparkline({-kMost, 0, kMost}, 80, false), "_+@");
}

TEST(PhaseLine, NamesEachPhaseAsFarAsThereIsRoom) {
  std::vector<LrPhase> phases(10, LrPhase::kStable);
  phases.insert(phases.end(), 4, LrPhase::kDecay);
  phases.push_back(LrPhase::kUnknown);
  EXPECT_EQ(PhaseLine(phases, 80, false), "|stable---|dec|");
  EXPECT_EQ(PhaseLine(phases, 6, false), "||dec|");
  EXPECT_EQ(PhaseLine(phases, 80, true), "│stable───│dec│");
  EXPECT_EQ(PhaseLine({}, 80, true), "");
}

}  // namespace sparkline_test
}  // namespace ptqwatch::internal
