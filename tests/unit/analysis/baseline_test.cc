#include "analysis/baseline.h"

#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace baseline_test {

std::vector<SeriesPoint> Line(double level, double slope, double scatter, int count,
                              std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::vector<SeriesPoint> points;
  for (int i = 1; i <= count; ++i) {
    const double x = std::log(1000.0 * (10 + i));
    points.push_back({x, level + slope * x + scatter * normal(random)});
  }
  return points;
}

TEST(Baseline, FindsLevelSlopeAndScatter) {
  std::mt19937_64 random(1);
  const auto fit = Baseline::Fit(Line(-2, 0.5, 0.05, 400, random), {.slope_sigma = 10});
  ASSERT_TRUE(fit.has_value());
  EXPECT_NEAR(fit->slope(), 0.5, 4 * fit->slope_stderr());
  EXPECT_NEAR(fit->scatter(), 0.05, 0.006);
  EXPECT_NEAR(fit->At(10), -2 + 5, 0.02);
}

TEST(Baseline, IsNotMovedByWildSnapshots) {
  std::mt19937_64 random(2);
  auto points = Line(0, 0, 0.05, 24, random);
  const auto clean = Baseline::Fit(points, {});
  points[5].y += 3;
  points[11].y += 3;
  const auto wild = Baseline::Fit(points, {});
  EXPECT_NEAR(wild->At(points[20].x), clean->At(points[20].x), 0.03);
  EXPECT_LT(wild->scatter(), 2 * clean->scatter());
}

TEST(Baseline, NeedsTwoPoints) {
  EXPECT_FALSE(Baseline::Fit({}, {}).has_value());
  EXPECT_FALSE(Baseline::Fit({{1, 1}}, {}).has_value());
  EXPECT_TRUE(Baseline::Fit({{1, 1}, {1, 1}}, {}).has_value());
}

// The evidence for a change that is not there is a standard normal deviate.
TEST(Baseline, GivesEvidenceOnTheScaleOfANormal) {
  std::mt19937_64 random(3);
  double sum = 0, squares = 0;
  int beyond = 0;
  constexpr int kRuns = 4000;
  for (int run = 0; run < kRuns; ++run) {
    const auto points = Line(0, 0.25, 0.1, 24, random);
    const absl::Span<const SeriesPoint> all(points);
    const auto fit = Baseline::Fit(all.subspan(0, 20), {});
    const std::vector<double> course(4, 1.0);
    const double sigmas = fit->Estimate(all.subspan(20), course).sigmas;
    sum += sigmas;
    squares += sigmas * sigmas;
    beyond += sigmas > 2.326;
  }
  EXPECT_NEAR(sum / kRuns, 0, 0.06);
  EXPECT_NEAR(squares / kRuns, 1, 0.12);
  EXPECT_NEAR(beyond / static_cast<double>(kRuns), 0.01, 0.006);
}

TEST(Baseline, EstimatesAChangeOfKnownCourse) {
  std::mt19937_64 random(4);
  auto points = Line(0, 0.25, 0.02, 40, random);
  std::vector<double> course;
  for (size_t i = 30; i < 40; ++i) {
    course.push_back(0.1 * static_cast<double>(i - 29));
    points[i].y += 0.7 * course.back();
  }
  const absl::Span<const SeriesPoint> all(points);
  const auto fit = Baseline::Fit(all.subspan(0, 30), {});
  const auto change = fit->Estimate(all.subspan(30), course);
  EXPECT_NEAR(change.size, 0.7, 4 * change.stderr_value);
  EXPECT_GT(change.sigmas, 6);
  // Cut off, a single wild residual is worth no more than that.
  points[39].y += 100;
  EXPECT_LT(fit->Estimate(fit->SumsOf(points[39], 1, 5)).sigmas, 5);
}

}  // namespace baseline_test
}  // namespace ptqwatch::internal
