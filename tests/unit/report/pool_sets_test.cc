#include "report/pool_sets.h"

#include <cmath>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace pool_sets_test {

// A unit's loss increase, tokens and full-precision loss.
struct Unit {
  double x = 0;
  double y = 0;
  double z = 0;
};

std::vector<Unit> Draw(size_t count, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  std::uniform_int_distribution<int> tokens(100, 200);
  std::vector<Unit> units;
  for (size_t i = 0; i < count; ++i) {
    const double y = tokens(random);
    units.push_back({y * (0.1 + 0.08 * normal(random)), y, y * (1.8 + 0.3 * normal(random))});
  }
  return units;
}

ProbeSet SumsOf(const std::vector<Unit>& units, int64_t number) {
  ProbeSet set;
  set.set = number;
  set.status = ProbeStatus::kOk;
  set.units = static_cast<int64_t>(units.size());
  for (const auto& [x, y, z] : units) {
    set.tokens += static_cast<int64_t>(y);
    set.change += x;
    set.loss += z;
    set.weight += y;
    set.change_squared += x * x;
    set.loss_squared += z * z;
    set.weight_squared += y * y;
    set.change_by_loss += x * z;
    set.change_by_weight += x * y;
  }
  return set;
}

struct Ratio {
  double value = 0;
  double error = 0;
};

// The ratio estimator over all units, from the units themselves.
Ratio Direct(const std::vector<Unit>& units, double Unit::*denominator) {
  double x = 0;
  double y = 0;
  for (const Unit& unit : units) {
    x += unit.x;
    y += unit.*denominator;
  }
  double squares = 0;
  for (const Unit& unit : units) squares += std::pow(unit.x - x / y * unit.*denominator, 2);
  const double n = static_cast<double>(units.size());
  return {x / y, std::sqrt(n / (n - 1) * squares) / y};
}

TEST(PoolSets, IsTheEstimateOverAllUnits) {
  std::mt19937_64 random(5);
  std::vector<Unit> all;
  PooledLoss pooled;
  int64_t tokens = 0;
  for (int64_t i = 0; i < 5; ++i) {
    const std::vector<Unit> units = Draw(64 + 16 * static_cast<size_t>(i), random);
    pooled.sets.push_back(SumsOf(units, i));
    tokens += pooled.sets.back().tokens;
    all.insert(all.end(), units.begin(), units.end());
  }
  PoolSets(pooled);
  EXPECT_EQ(pooled.status, ProbeStatus::kOk);
  EXPECT_EQ(pooled.probe_tokens, tokens);
  const Ratio delta = Direct(all, &Unit::y);
  const Ratio error = Direct(all, &Unit::z);
  EXPECT_NEAR(*pooled.delta_nats, delta.value, 1e-13);
  EXPECT_NEAR(*pooled.delta_stderr_nats, delta.error, 1e-13);
  EXPECT_NEAR(*pooled.error_ratio, error.value, 1e-13);
  EXPECT_NEAR(*pooled.error_ratio_stderr, error.error, 1e-13);
}

// 400 estimates from one set and from four scatter as the error bars say, and by half.
TEST(PoolSets, HalvesTheErrorBarWithFourSets) {
  constexpr int kEstimates = 400;
  std::mt19937_64 random(11);
  double scatter[2] = {};
  double stated[2] = {};
  for (int i = 0; i < kEstimates; ++i) {
    PooledLoss pooled;
    for (int64_t set = 0; set < 4; ++set) pooled.sets.push_back(SumsOf(Draw(64, random), set));
    PooledLoss one;
    one.sets = {pooled.sets[0]};
    PoolSets(one);
    PoolSets(pooled);
    for (const auto& [place, estimate] : {std::pair(0, &one), {1, &pooled}}) {
      scatter[place] += std::pow(*estimate->delta_nats - 0.1, 2) / kEstimates;
      stated[place] += std::pow(*estimate->delta_stderr_nats, 2) / kEstimates;
    }
  }
  for (const int place : {0, 1}) {
    EXPECT_NEAR(scatter[place] / stated[place], 1, 0.2) << "four standard errors are 0.28";
  }
  EXPECT_NEAR(stated[1] / stated[0], 0.25, 0.01);
  EXPECT_NEAR(scatter[1] / scatter[0], 0.25, 0.06);
}

TEST(PoolSets, HasNoNumbersIfASetIsMissing) {
  std::mt19937_64 random(5);
  PooledLoss pooled;
  for (int64_t i = 0; i < 4; ++i) pooled.sets.push_back(SumsOf(Draw(8, random), i));
  PoolSets(pooled);
  ASSERT_TRUE(pooled.delta_nats);
  pooled.sets[1].status = ProbeStatus::kOtherRank;
  pooled.sets[1].status_detail = "left to rank 2";
  pooled.sets[3].status = ProbeStatus::kFailed;
  pooled.sets[3].status_detail = "no memory";
  PoolSets(pooled);
  EXPECT_EQ(pooled.status, ProbeStatus::kOtherRank);
  EXPECT_EQ(pooled.status_detail, "set 1: left to rank 2; set 3: no memory");
  EXPECT_FALSE(pooled.delta_nats || pooled.delta_stderr_nats || pooled.error_ratio ||
               pooled.error_ratio_stderr || pooled.probe_tokens != 0);
}

TEST(PoolSets, HasNoErrorBarFromASingleUnit) {
  PooledLoss pooled;
  pooled.sets = {SumsOf({{2, 4, 8}}, 0)};
  PoolSets(pooled);
  EXPECT_EQ(pooled.delta_nats, 0.5);
  EXPECT_EQ(pooled.error_ratio, 0.25);
  EXPECT_EQ(pooled.delta_stderr_nats, std::nullopt);
}

}  // namespace pool_sets_test
}  // namespace ptqwatch::internal
