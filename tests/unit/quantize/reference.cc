#include "unit/quantize/reference.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "quantize/kernels/simd_targets.h"
// After simd_targets.h, which sets what Highway compiles for.
#include "hwy/highway.h"
#include "hwy/targets.h"

namespace ptqwatch::testing {
namespace {

struct Grids {
  int64_t group = 0;
  int64_t groups = 0;
  std::vector<GroupGrid> grids;

  const GroupGrid& At(int64_t r, int64_t c) const {
    return grids[static_cast<size_t>(r * groups + c / group)];
  }
  int Code(int64_t r, int64_t c, float w) const { return At(r, c).Code(w); }
  float Decode(int64_t r, int64_t c, int code) const {
    return At(r, c).scale * (static_cast<float>(code) - At(r, c).zero);
  }
};

Grids FitGrids(const Matrix& w, const QuantizerSpec& spec) {
  Grids grids;
  grids.group = spec.group_size < 0 ? w.cols : spec.group_size;
  grids.groups = (w.cols + grids.group - 1) / grids.group;
  for (int64_t r = 0; r < w.rows; ++r) {
    const auto row = w.values.begin() + r * w.cols;
    for (int64_t begin = 0; begin < w.cols; begin += grids.group) {
      const std::vector<float> weights(row + begin, row + std::min(w.cols, begin + grids.group));
      grids.grids.emplace_back(weights, spec);
    }
  }
  return grids;
}

using Dense = std::vector<double>;

// Lower triangular L with a = L L^T.
Dense Cholesky(const Dense& a, int64_t n) {
  Dense l(a.size(), 0.0);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      double sum = a[static_cast<size_t>(i * n + j)];
      for (int64_t k = 0; k < j; ++k) {
        sum -= l[static_cast<size_t>(i * n + k)] * l[static_cast<size_t>(j * n + k)];
      }
      l[static_cast<size_t>(i * n + j)] =
          i == j ? std::sqrt(sum) : sum / l[static_cast<size_t>(j * n + j)];
    }
  }
  return l;
}

// The inverse of a positive definite matrix from its Cholesky factor.
Dense InverseFromFactor(const Dense& l, int64_t n) {
  Dense inverse(l.size(), 0.0);
  Dense column(static_cast<size_t>(n));
  for (int64_t c = 0; c < n; ++c) {
    for (int64_t i = 0; i < n; ++i) {
      double sum = i == c ? 1 : 0;
      for (int64_t k = 0; k < i; ++k) {
        sum -= l[static_cast<size_t>(i * n + k)] * column[static_cast<size_t>(k)];
      }
      column[static_cast<size_t>(i)] = sum / l[static_cast<size_t>(i * n + i)];
    }
    for (int64_t i = n - 1; i >= 0; --i) {
      double sum = column[static_cast<size_t>(i)];
      for (int64_t k = i + 1; k < n; ++k) {
        sum -= l[static_cast<size_t>(k * n + i)] * column[static_cast<size_t>(k)];
      }
      column[static_cast<size_t>(i)] = sum / l[static_cast<size_t>(i * n + i)];
      inverse[static_cast<size_t>(i * n + c)] = column[static_cast<size_t>(i)];
    }
  }
  return inverse;
}

}  // namespace

Matrix RandomMatrix(int64_t rows, int64_t cols, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Matrix matrix(rows, cols);
  for (float& value : matrix.values) value = normal(random);
  return matrix;
}

Matrix CorrelatedInputs(int64_t rows, int64_t cols, uint64_t seed) {
  Matrix x = RandomMatrix(rows, cols, seed);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 1; c < cols; ++c) x.at(r, c) = 0.9f * x.at(r, c - 1) + 0.4f * x.at(r, c);
    for (int64_t c = 5; c < cols; c += 37) x.at(r, c) *= 20;
  }
  return x;
}

GramStatistics NaiveGram(const Matrix& x) {
  GramStatistics statistics;
  statistics.inputs = x.cols;
  statistics.sum.resize(static_cast<size_t>(x.cols * x.cols));
  statistics.abs_sum.resize(static_cast<size_t>(x.cols));
  statistics.abs_max.resize(static_cast<size_t>(x.cols));
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* row = x.values.data() + r * x.cols;
    if (!std::all_of(row, row + x.cols, [](float v) { return std::isfinite(v); })) {
      ++statistics.skipped_rows;
      continue;
    }
    ++statistics.tokens;
    for (int64_t i = 0; i < x.cols; ++i) {
      const size_t at = static_cast<size_t>(i);
      statistics.abs_sum[at] += std::abs(static_cast<double>(row[i]));
      statistics.abs_max[at] = std::max(statistics.abs_max[at], std::abs(row[i]));
      for (int64_t j = 0; j < x.cols; ++j) {
        statistics.sum[static_cast<size_t>(i * x.cols + j)] +=
            static_cast<double>(row[i]) * static_cast<double>(row[j]);
      }
    }
  }
  return statistics;
}

GramStatistics Gram(const Matrix& x) {
  ExecutionContext context;
  GramAccumulator gram(x.cols);
  // A failure shows as statistics without tokens.
  gram.Add(x.view(), context).IgnoreError();
  return gram.Take();
}

GroupGrid::GroupGrid(float low, float high, const QuantizerSpec& spec)
    : bottom(spec.narrow_range ? 1.0f : 0.0f), top(static_cast<float>((1 << spec.bits) - 1)) {
  if (spec.symmetric) {
    high = std::max(-low, high);
    low = -high;
  }
  if (low == 0 && high == 0) {
    low = -1;
    high = 1;
  }
  const int middle = 1 << (spec.bits - 1);
  scale = spec.narrow_range ? high / static_cast<float>(middle - 1) : (high - low) / top;
  scale = std::max(scale, static_cast<float>(spec.min_scale));
  zero = spec.symmetric ? static_cast<float>(middle) : std::nearbyintf(-low / scale);
}

float ClipLimit(const std::vector<float>& weights, const QuantizerSpec& spec) {
  const size_t n = weights.size();
  if (spec.clip == ClipSearch::kStd) {
    long double mean = 0;
    for (float w : weights) mean += static_cast<long double>(w);
    mean /= static_cast<long double>(n);
    long double squares = 0;
    for (float w : weights) {
      squares += (static_cast<long double>(w) - mean) * (static_cast<long double>(w) - mean);
    }
    const auto deviation = static_cast<float>(std::sqrt(squares / static_cast<long double>(n - 1)));
    return static_cast<float>(spec.clip_value) * deviation;
  }
  std::vector<float> sorted;
  for (float w : weights) sorted.push_back(std::abs(w));
  std::sort(sorted.begin(), sorted.end());
  const double rank =
      static_cast<double>(static_cast<float>(spec.clip_value / 100)) * static_cast<double>(n - 1);
  const float below = sorted[static_cast<size_t>(std::floor(rank))];
  const float above = sorted[static_cast<size_t>(std::ceil(rank))];
  const float gap = above - below;
  const auto share = static_cast<float>(rank - std::floor(rank));
  return static_cast<float>(
      share < 0.5f
          ? static_cast<double>(below) + static_cast<double>(share) * static_cast<double>(gap)
          : static_cast<double>(above) - static_cast<double>(1 - share) * static_cast<double>(gap));
}

namespace {

GroupGrid GridOver(const std::vector<float>& weights, const QuantizerSpec& spec) {
  if (spec.clip == ClipSearch::kPercentile || spec.clip == ClipSearch::kStd) {
    const float limit = ClipLimit(weights, spec);
    if (limit > 0) return {-limit, limit, spec};
  }
  const auto [low, high] = std::minmax_element(weights.begin(), weights.end());
  return {std::min(*low, 0.0f), std::max(*high, 0.0f), spec};
}

}  // namespace

GroupGrid::GroupGrid(const std::vector<float>& weights, const QuantizerSpec& spec)
    : GroupGrid(GridOver(weights, spec)) {}

int GroupGrid::Code(float w) const {
  return static_cast<int>(std::min(std::max(std::nearbyintf(w / scale) + zero, bottom), top));
}

float GroupGrid::Nearest(float w) const { return scale * (static_cast<float>(Code(w)) - zero); }

GramStatistics WithHessian(std::vector<double> hessian) {
  GramStatistics statistics;
  statistics.inputs =
      static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(hessian.size()))));
  statistics.tokens = 2;
  statistics.sum = std::move(hessian);
  return statistics;
}

double NaiveTrace(const std::vector<float>& a, const std::vector<float>& b,
                  const GramStatistics& statistics) {
  const int64_t d = statistics.inputs;
  double trace = 0;
  std::vector<double> error(static_cast<size_t>(d));
  for (size_t begin = 0; begin < a.size(); begin += static_cast<size_t>(d)) {
    for (size_t c = 0; c < error.size(); ++c) {
      error[c] = static_cast<double>(a[begin + c] - b[begin + c]);
    }
    for (size_t i = 0; i < error.size(); ++i) {
      for (size_t j = 0; j < error.size(); ++j) {
        trace += error[i] * error[j] * statistics.sum[i * error.size() + j];
      }
    }
  }
  return trace * 2 / static_cast<double>(statistics.tokens);
}

ReferenceResult ReferenceGptq(const Matrix& original, const GramStatistics& statistics,
                              const QuantizerSpec& spec) {
  const int64_t d = original.cols;
  const auto hessian = [&](int64_t i, int64_t j) {
    return 2 * statistics.sum[static_cast<size_t>(i * d + j)] /
           static_cast<double>(statistics.tokens);
  };
  Matrix weight = original;
  double mean = 0;
  int64_t live = 0;
  for (int64_t c = 0; c < d; ++c) {
    if (hessian(c, c) == 0) {
      for (int64_t r = 0; r < weight.rows; ++r) weight.at(r, c) = 0;
    } else {
      mean += hessian(c, c);
      ++live;
    }
  }
  if (live > 0) mean /= static_cast<double>(live);
  const Grids grids = FitGrids(weight, spec);

  ReferenceResult result;
  for (const GroupGrid& grid : grids.grids) {
    result.scale.push_back(grid.scale);
    result.zero.push_back(grid.zero);
  }
  result.damp_value = spec.damp * mean;
  result.order.resize(static_cast<size_t>(d));
  std::iota(result.order.begin(), result.order.end(), int64_t{0});
  if (spec.order == QuantizationOrder::kStaticAct) {
    std::stable_sort(result.order.begin(), result.order.end(),
                     [&](int64_t a, int64_t b) { return hessian(a, a) > hessian(b, b); });
  }
  const auto column = [&](int64_t k) { return result.order[static_cast<size_t>(k)]; };

  Dense damped(static_cast<size_t>(d * d));
  for (int64_t i = 0; i < d; ++i) {
    for (int64_t j = 0; j < d; ++j) {
      double value = hessian(column(i), column(j));
      if (i == j) value = (value == 0 ? 1 : value) + result.damp_value;
      damped[static_cast<size_t>(i * d + j)] = value;
    }
  }
  // U = L^T where H^-1 = L L^T.
  const Dense u = Cholesky(InverseFromFactor(Cholesky(damped, d), d), d);
  result.codes.resize(weight.values.size());
  result.dequantized.resize(weight.values.size());
  for (int64_t r = 0; r < weight.rows; ++r) {
    std::vector<double> running(static_cast<size_t>(d));
    for (int64_t k = 0; k < d; ++k) {
      running[static_cast<size_t>(k)] = static_cast<double>(weight.at(r, column(k)));
    }
    for (int64_t k = 0; k < d; ++k) {
      const double w = running[static_cast<size_t>(k)];
      const int code = grids.Code(r, column(k), static_cast<float>(w));
      const float q = grids.Decode(r, column(k), code);
      result.codes[static_cast<size_t>(r * d + column(k))] = code;
      result.dequantized[static_cast<size_t>(r * d + column(k))] = q;
      const double error = (w - static_cast<double>(q)) / u[static_cast<size_t>(k * d + k)];
      result.loss_damped += error * error;
      for (int64_t j = k + 1; j < d; ++j) {
        running[static_cast<size_t>(j)] -= error * u[static_cast<size_t>(j * d + k)];
      }
    }
  }
  std::vector<float> rtn(weight.values.size());
  for (int64_t r = 0; r < weight.rows; ++r) {
    for (int64_t c = 0; c < d; ++c) {
      rtn[static_cast<size_t>(r * d + c)] = grids.Decode(r, c, grids.Code(r, c, weight.at(r, c)));
    }
  }
  result.loss = NaiveTrace(original.values, result.dequantized, statistics);
  result.rtn_loss = NaiveTrace(weight.values, rtn, statistics);
  result.output_energy =
      NaiveTrace(original.values, std::vector<float>(original.values.size()), statistics);
  return result;
}

OnlyTarget::OnlyTarget(int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

OnlyTarget::~OnlyTarget() {
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

std::vector<int64_t> UsableTargets() { return hwy::SupportedAndGeneratedTargets(); }

}  // namespace ptqwatch::testing
