#include "analysis/convergence.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

#include "analysis/baseline.h"

namespace ptqwatch::internal {
namespace {

constexpr size_t kLeastSnapshots = 8;  // since the step
constexpr double kLeastImprovement = 0.005;
constexpr double kOneSided95 = 1.645;
constexpr double kTolerance = 2;  // in units of the scatter
// A second difference of independent values has sqrt(6) times their standard deviation. For a
// Gaussian, the latter is 1.4826 times the median of the absolute values.
const double kScatterOfDifference = 1.4826 / std::sqrt(6.0);
// Least scatter: losses have few digits in a journal.
constexpr double kRounding = 1e-6;

struct Loss {
  int64_t step = 0;
  SeriesPoint point;
};

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The median of `width` losses in a row around the i-th, or those nearest to it at the ends.
// `width` is odd and at most the number of losses.
double RunningMedian(absl::Span<const Loss> losses, size_t i, size_t width) {
  const size_t first = std::min(i - std::min(i, width / 2), losses.size() - width);
  std::vector<double> values;
  for (const Loss& loss : losses.subspan(first, width)) values.push_back(loss.point.y);
  return MedianOf(std::move(values));
}

double Scatter(absl::Span<const Loss> losses) {
  std::vector<double> differences;
  for (size_t i = 1; i + 1 < losses.size(); ++i) {
    differences.push_back(
        std::abs(losses[i - 1].point.y - 2 * losses[i].point.y + losses[i + 1].point.y));
  }
  return std::max(kRounding, kScatterOfDifference * MedianOf(std::move(differences)));
}

// Share by which the loss falls a doubling of the steps: one-sided 95 % bounds.
struct Improvement {
  double low = 0, high = 0;
};

std::optional<Improvement> ImprovementOf(absl::Span<const Loss> losses, double scatter) {
  if (losses.size() < kLeastSnapshots) return std::nullopt;
  std::vector<SeriesPoint> points;
  for (const Loss& loss : losses) points.push_back(loss.point);
  const auto line = Baseline::Fit(
      points, {.slope = 0, .slope_sigma = 1, .scatter = scatter, .scatter_weight = 6});
  if (!line) return std::nullopt;
  const double margin = kOneSided95 * line->slope_stderr();
  return Improvement{std::numbers::ln2 * (-line->slope() - margin),
                     std::numbers::ln2 * (-line->slope() + margin)};
}

std::optional<int64_t> Converged(absl::Span<const Loss> losses) {
  if (losses.size() < kLeastSnapshots) return std::nullopt;
  double level = RunningMedian(losses, 0, 5);
  for (size_t i = 1; i < losses.size(); ++i) level = std::min(level, RunningMedian(losses, i, 5));
  const double scatter = Scatter(losses);
  size_t first = 0;
  while (RunningMedian(losses, first, 3) > level + kTolerance * scatter) ++first;
  const absl::Span<const Loss> since = losses.subspan(first);
  const std::optional<Improvement> improvement = ImprovementOf(since, scatter);
  if (!improvement || improvement->high >= kLeastImprovement) return std::nullopt;
  return since.front().step;
}

// Whether the losses since `step` improve, with 95 % confidence.
bool ImprovesSince(int64_t step, absl::Span<const Loss> losses) {
  const auto first = std::find_if(losses.begin(), losses.end(),
                                  [&](const Loss& loss) { return loss.step >= step; });
  const absl::Span<const Loss> since = losses.subspan(static_cast<size_t>(first - losses.begin()));
  if (since.size() < kLeastSnapshots) return false;
  const std::optional<Improvement> improvement = ImprovementOf(since, Scatter(losses));
  return improvement && improvement->low >= kLeastImprovement;
}

}  // namespace

std::optional<int64_t> LossConvergedStep(const History& history, std::optional<int64_t> known) {
  const std::vector<Point>& points = history.points();
  const double limit = history.PlateauLimit(points.size());
  std::vector<Loss> losses;
  std::optional<size_t> before_fall;
  for (const Point& point : points) {
    if (point.rising || !point.loss_nats || *point.loss_nats <= 0) continue;
    if (!before_fall && point.decayed > limit) before_fall = losses.size();
    losses.push_back({point.step, {point.log_step, std::log(*point.loss_nats)}});
  }
  const auto plateau = absl::MakeConstSpan(losses).first(before_fall.value_or(losses.size()));
  if (known && !ImprovesSince(*known, plateau)) return known;
  std::optional<int64_t> step = Converged(losses);
  if (!step && before_fall) step = Converged(plateau);
  return step;
}

}  // namespace ptqwatch::internal
