#include "analysis/composite.h"

#include <algorithm>
#include <cmath>

namespace ptqwatch::internal {
namespace {

// Least scatter of a series. A smaller estimate only shows that it has too few snapshots.
constexpr double kLeastScatter = 0.03;

constexpr SeriesPrior kErrorPrior = {.slope = 0.25, .slope_sigma = 0.2, .scatter = 0.12};
constexpr SeriesPrior kErrorMeanPrior = {.slope = 0.25, .slope_sigma = 0.2, .scatter = 0.11};
constexpr SeriesPrior kCurvaturePrior = {.slope = 0.1, .slope_sigma = 0.25, .scatter = 0.08};

const SeriesPrior& PriorOf(SeriesKind kind) {
  return kind == SeriesKind::kError ? kErrorPrior : kCurvaturePrior;
}

}  // namespace

std::optional<Composite> Composite::Fit(const std::vector<Point>& points,
                                        absl::Span<const size_t> reference, SeriesKind kind) {
  Composite composite(points, kind);
  if (reference.size() < kMinReference) return std::nullopt;
  std::map<std::string, std::vector<SeriesPoint>> values;
  for (const size_t i : reference) {
    composite.center_ += points[i].log_step / static_cast<double>(reference.size());
    for (const auto& [name, value] : points[i].series) {
      if (value.kind == kind) values[name].push_back({points[i].log_step, value.log_value});
    }
  }
  for (const auto& [name, series] : values) {
    if (series.size() < kMinReference) continue;
    composite.series_.emplace(name, *Baseline::Fit(series, PriorOf(kind)));
  }
  std::vector<SeriesPoint> distances;
  for (const size_t i : reference) {
    if (const auto distance = composite.Distance(i)) {
      distances.push_back({points[i].log_step, *distance});
    }
  }
  if (distances.size() < kMinReference) return std::nullopt;
  composite.baseline_ = Baseline::Fit(
      distances,
      kind == SeriesKind::kError && composite.series_.size() > 1 ? kErrorMeanPrior : PriorOf(kind));
  return composite;
}

// Uses only the level of each series' baseline; the slope is fitted to the mean.
std::optional<double> Composite::Distance(size_t index) const {
  double sum = 0;
  double weights = 0;
  for (const auto& [name, value] : (*points_)[index].series) {
    if (value.kind != kind_) continue;
    const auto found = series_.find(name);
    if (found == series_.end()) continue;
    const double level = found->second.At(center_);
    double response = 1;
    if (kind_ == SeriesKind::kError) {
      // Share of a relative change that remains despite the floor of the logarithm.
      response = std::max(ErrorRatio(level), 0.0) / std::exp(level);
    }
    const double scatter = std::max(found->second.scatter(), kLeastScatter);
    const double weight = (response * response + 1e-3) / (scatter * scatter);
    sum += weight * (value.log_value - level);
    weights += weight;
  }
  if (weights == 0) return std::nullopt;
  return sum / weights;
}

std::optional<Baseline::Sums> Composite::SumsOf(size_t index, double course,
                                                double most_sigmas) const {
  const auto distance = Distance(index);
  if (!distance) return std::nullopt;
  return baseline_->SumsOf({(*points_)[index].log_step, *distance}, course, most_sigmas);
}

std::optional<Baseline::Change> Composite::EstimateSeries(const std::string& name,
                                                          absl::Span<const size_t> tested,
                                                          absl::Span<const double> course) const {
  const auto found = series_.find(name);
  if (found == series_.end()) return std::nullopt;
  std::vector<SeriesPoint> values;
  std::vector<double> courses;
  for (size_t i = 0; i < tested.size(); ++i) {
    const Point& point = (*points_)[tested[i]];
    const auto value = point.series.find(name);
    if (value == point.series.end()) continue;
    values.push_back({point.log_step, value->second.log_value});
    courses.push_back(course[i]);
  }
  if (values.empty()) return std::nullopt;
  return found->second.Estimate(values, courses);
}

}  // namespace ptqwatch::internal
