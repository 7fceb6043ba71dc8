#include "quantize/kernels/clip_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "unit/quantize/reference.h"
#include "unit/quantize/run_ok.h"

namespace ptqwatch::internal {
namespace clip_search_test {

using ::testing::Each;
using testing::GroupGrid;
using testing::Matrix;
using testing::RandomMatrix;

QuantizerSpec Spec(int bits, int group_size, bool symmetric) {
  QuantizerSpec spec;
  spec.bits = bits;
  spec.group_size = group_size;
  spec.symmetric = symmetric;
  return spec;
}

struct Range {
  float low = 0;
  float high = 0;
};

Range RangeOf(const std::vector<float>& w) {
  return {std::min(0.0f, *std::min_element(w.begin(), w.end())),
          std::max(0.0f, *std::max_element(w.begin(), w.end()))};
}

std::vector<float> Slice(const Matrix& m, int64_t r, int64_t begin, int64_t count) {
  const auto at = m.values.begin() + r * m.cols + begin;
  return {at, at + count};
}

double ImportanceError(const std::vector<float>& w, const double* importance,
                       const GroupGrid& grid) {
  double sum = 0;
  for (size_t k = 0; k < w.size(); ++k) {
    const double e = static_cast<double>(w[k] - grid.Nearest(w[k]));
    sum += importance[k] * e * e;
  }
  return sum;
}

// A few large weights among small ones, so that clipping pays.
Matrix HeavyTails(int64_t rows, int64_t cols, uint64_t seed) {
  Matrix m = RandomMatrix(rows, cols, seed);
  for (float& w : m.values) w = w * w * w;
  return m;
}

std::vector<double> Importance(int64_t cols) {
  std::vector<double> importance(static_cast<size_t>(cols));
  for (size_t c = 0; c < importance.size(); ++c) importance[c] = 1.0 + 30.0 * (c % 7 == 3);
  return importance;
}

Grid FitImportance(const Matrix& m, const std::vector<double>& importance,
                   const QuantizerSpec& spec, ClipResult* result) {
  ExecutionContext context;
  Grid grid = EmptyGrid(m.rows, m.cols, spec);
  absl::StatusOr<ClipResult> got =
      FitClippedByImportance(m.view(), importance.data(), &grid, context);
  EXPECT_TRUE(got.ok()) << got.status();
  if (got.ok()) *result = *got;
  return grid;
}

TEST(ClipSearch, FindsTheFirstBestOfEightyFactors) {
  const Matrix m = HeavyTails(29, 75, 1);
  const std::vector<double> importance = Importance(75);
  for (int bits : {2, 4, 8}) {
    for (bool symmetric : {true, false}) {
      const QuantizerSpec spec = Spec(bits, 20, symmetric);
      ClipResult result;
      const Grid grid = FitImportance(m, importance, spec, &result);
      EXPECT_TRUE(result.fits);
      int64_t clipped = 0;
      for (int64_t r = 0; r < m.rows; ++r) {
        for (int64_t g = 0; g < 4; ++g) {
          const std::vector<float> w = Slice(m, r, 20 * g, std::min<int64_t>(20, 75 - 20 * g));
          const Range range = RangeOf(w);
          double least = std::numeric_limits<double>::infinity();
          GroupGrid best(0, 0, spec);
          bool whole = true;
          for (int i = 0; i < 80; ++i) {
            const float factor = static_cast<float>(1 - i / 100.0);
            const GroupGrid candidate(factor * range.low, factor * range.high, spec);
            const double error = ImportanceError(w, importance.data() + 20 * g, candidate);
            if (error < least) {
              least = error;
              best = candidate;
              whole = i == 0;
            }
          }
          clipped += !whole;
          ASSERT_EQ(grid.scale[static_cast<size_t>(4 * r + g)], best.scale) << r << " " << g;
          ASSERT_EQ(grid.zero[static_cast<size_t>(4 * r + g)], best.zero);
        }
      }
      EXPECT_EQ(result.groups, clipped);
      if (bits < 8) {
        EXPECT_GT(clipped, 50);
      }
    }
  }
}

TEST(ClipSearch, GivesTheSameBitsOnEveryTarget) {
  const Matrix m = HeavyTails(31, 70, 2);
  const std::vector<double> importance = Importance(70);
  const QuantizerSpec spec = Spec(3, 32, false);
  ClipResult result;
  const Grid expected = FitImportance(m, importance, spec, &result);
  for (int64_t target : testing::UsableTargets()) {
    const testing::OnlyTarget only(target);
    ClipResult again;
    const Grid grid = FitImportance(m, importance, spec, &again);
    EXPECT_EQ(grid.scale, expected.scale);
    EXPECT_EQ(grid.zero, expected.zero);
    EXPECT_EQ(again.groups, result.groups);
  }
}

TEST(ClipSearch, LeavesZerosAndUnimportantWeightsAlone) {
  Matrix m(2, 10);
  ClipResult result;
  FitImportance(m, std::vector<double>(10, 1.0), Spec(4, -1, true), &result);
  EXPECT_EQ(result.groups, 0);
  m = HeavyTails(2, 10, 3);
  const Grid grid = FitImportance(m, std::vector<double>(10, 0.0), Spec(4, -1, true), &result);
  EXPECT_EQ(result.groups, 0);
  Grid whole = EmptyGrid(2, 10, Spec(4, -1, true));
  for (int64_t r = 0; r < 2; ++r) FitRow(m.values.data() + r * 10, r, &whole);
  EXPECT_EQ(grid.scale, whole.scale);
}

TEST(ClipSearch, SaysWhenAGridOverflows) {
  Matrix m = HeavyTails(3, 5, 4);
  m.at(2, 2) = 3e38f;
  m.at(2, 3) = -3e38f;
  ClipResult result;
  FitImportance(m, std::vector<double>(5, 1.0), Spec(4, -1, true), &result);
  EXPECT_FALSE(result.fits);
}

// dW S dW^T of one group.
double OutputError(const std::vector<float>& w, const float* s, const double* sum, int64_t cols,
                   int64_t begin, const GroupGrid& grid) {
  std::vector<double> e;
  for (size_t k = 0; k < w.size(); ++k) {
    e.push_back(static_cast<double>(w[k] - grid.Nearest(w[k] * s[k]) / s[k]));
  }
  double error = 0;
  for (size_t i = 0; i < e.size(); ++i) {
    for (size_t j = 0; j < e.size(); ++j) {
      error += e[i] * e[j] *
               sum[(begin + static_cast<int64_t>(i)) * cols + begin + static_cast<int64_t>(j)];
    }
  }
  return error;
}

TEST(ClipSearch, MinimisesTheOutputErrorOfEachGroup) {
  for (const auto& [rows, cols, group] :
       {std::tuple{29, 75, 20}, {13, 66, -1}, {1, 1, 4}, {5, 9, 1}, {12, 131, 128}}) {
    const Matrix m = HeavyTails(rows, cols, static_cast<uint64_t>(cols));
    const GramStatistics statistics =
        testing::Gram(testing::CorrelatedInputs(150, cols, static_cast<uint64_t>(rows)));
    std::vector<float> s(static_cast<size_t>(cols));
    for (size_t c = 0; c < s.size(); ++c) s[c] = 0.5f + 0.25f * static_cast<float>(c % 5);
    for (bool symmetric : {true, false}) {
      const QuantizerSpec spec = Spec(3, group, symmetric);
      for (int64_t target : testing::UsableTargets()) {
        const testing::OnlyTarget only(target);
        ExecutionContext context;
        Grid grid = EmptyGrid(rows, cols, spec);
        const absl::StatusOr<ClipResult> result =
            FitClippedByOutput(m.view(), s.data(), statistics.sum.data(), &grid, context);
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_TRUE(result->fits);
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t g = 0; g < grid.groups; ++g) {
            const int64_t begin = grid.GroupBegin(g);
            const std::vector<float> w = Slice(m, r, begin, grid.GroupCount(g));
            std::vector<float> scaled = w;
            for (size_t k = 0; k < w.size(); ++k) scaled[k] *= s[static_cast<size_t>(begin) + k];
            const Range range = RangeOf(scaled);
            const float most = std::max(-range.low, range.high);
            const auto error = [&](const GroupGrid& candidate) {
              return OutputError(w, s.data() + begin, statistics.sum.data(), cols, begin,
                                 candidate);
            };
            GroupGrid chosen(0, 0, spec);
            chosen.scale = grid.scale[static_cast<size_t>(r * grid.groups + g)];
            chosen.zero = grid.zero[static_cast<size_t>(r * grid.groups + g)];
            double least = std::numeric_limits<double>::infinity();
            bool found = false;
            for (int i = 0; i < 10; ++i) {
              const float limit = static_cast<float>(1 - i / 20.0) * most;
              const GroupGrid candidate(std::max(range.low, -limit), std::min(range.high, limit),
                                        spec);
              least = std::min(least, error(candidate));
              found = found || (candidate.scale == chosen.scale && candidate.zero == chosen.zero);
            }
            EXPECT_TRUE(found);
            // Within rounding: candidates may tie.
            ASSERT_LE(error(chosen), least * (1 + 1e-9) + 1e-12) << r << " " << g;
          }
        }
      }
    }
  }
}

TEST(ClipSearch, StopsWhenCancelled) {
  const Matrix m = HeavyTails(30, 40, 5);
  const std::vector<double> importance(40, 1.0);
  const std::vector<float> s(40, 1.0f);
  const std::vector<double> sum(1600, 1.0);
  ExecutionContext context;
  context.cancel.Cancel();
  Grid grid = EmptyGrid(30, 40, Spec(4, 20, true));
  EXPECT_EQ(FitClippedByImportance(m.view(), importance.data(), &grid, context).status().code(),
            absl::StatusCode::kCancelled);
  EXPECT_EQ(FitClippedByOutput(m.view(), s.data(), sum.data(), &grid, context).status().code(),
            absl::StatusCode::kCancelled);
}

// Through the public interface.
QuantizerSpec Clipped(QuantizationMethod method, int bits) {
  QuantizerSpec spec = testing::SpecOf(method);
  spec.bits = bits;
  spec.clip = ClipSearch::kMse;
  return spec;
}

double SumOfSquares(const Matrix& weight, const QuantizedWeight& got) {
  double sum = 0;
  for (size_t i = 0; i < got.dequantized.size(); ++i) {
    const double e = static_cast<double>(weight.values[i] - got.dequantized[i]);
    sum += e * e;
  }
  return sum;
}

TEST(ClippedRtn, HasASmallerSquaredErrorWithoutStatistics) {
  const Matrix weight = HeavyTails(20, 100, 6);
  QuantizerSpec spec = Clipped(QuantizationMethod::kRtn, 3);
  const QuantizedWeight clipped = testing::RunOk(weight, nullptr, spec);
  spec.clip = ClipSearch::kNone;
  const QuantizedWeight whole = testing::RunOk(weight, nullptr, spec);
  EXPECT_GT(clipped.clipped_groups, 20);
  EXPECT_EQ(whole.clipped_groups, 0);
  EXPECT_LT(SumOfSquares(weight, clipped), 0.8 * SumOfSquares(weight, whole));
}

TEST(ClippedRtn, WeighsErrorsByTheInputs) {
  const Matrix weight = HeavyTails(20, 64, 7);
  Matrix inputs = RandomMatrix(300, 64, 8);
  for (int64_t r = 0; r < inputs.rows; ++r) {
    for (int64_t c = 0; c < 64; c += 9) inputs.at(r, c) *= 30;
  }
  const GramStatistics statistics = testing::Gram(inputs);
  const QuantizerSpec spec = Clipped(QuantizationMethod::kRtn, 3);
  EXPECT_LT(*testing::RunOk(weight, &statistics, spec).loss,
            testing::NaiveTrace(weight.values, testing::RunOk(weight, nullptr, spec).dequantized,
                                statistics));
}

TEST(ClippedGptq, LosesLessThanOnWholeGrids) {
  const Matrix weight = HeavyTails(24, 128, 9);
  const GramStatistics statistics = testing::Gram(testing::CorrelatedInputs(400, 128, 10));
  QuantizerSpec spec = Clipped(QuantizationMethod::kGptq, 3);
  const QuantizedWeight clipped = testing::RunOk(weight, &statistics, spec);
  spec.clip = ClipSearch::kNone;
  const QuantizedWeight whole = testing::RunOk(weight, &statistics, spec);
  EXPECT_GT(clipped.clipped_groups, 24);
  EXPECT_LT(*clipped.loss, *whole.loss);
  EXPECT_LT(*clipped.rtn_loss, *whole.rtn_loss);
  // RTN's grids are the same if no column is dead.
  spec = Clipped(QuantizationMethod::kRtn, 3);
  const QuantizedWeight rtn = testing::RunOk(weight, &statistics, spec);
  EXPECT_EQ(rtn.scale, clipped.scale);
  EXPECT_EQ(rtn.clipped_groups, clipped.clipped_groups);
}

}  // namespace clip_search_test
}  // namespace ptqwatch::internal
