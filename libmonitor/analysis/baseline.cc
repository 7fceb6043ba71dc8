#include "analysis/baseline.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ptqwatch::internal {
namespace {

constexpr int kIterations = 4;
constexpr double kHuber = 2;
// For a Gaussian: standard deviation over median absolute deviation, and the variance that remains
// after residuals are clipped at +-2 standard deviations.
constexpr double kMadToSigma = 1.4826;
constexpr double kCutVariance = 0.9205;

double Median(std::vector<double> values) {
  const size_t half = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half),
                   values.end());
  const double upper = values[half];
  if (values.size() % 2 == 1) return upper;
  return (*std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half)) +
          upper) /
         2;
}

// The standard normal deviate with the same tail probability as Student's t (Wallace 1959, Annals
// of Mathematical Statistics 30, 1124).
double NormalOf(double t, double freedom) {
  const double size =
      (8 * freedom + 1) / (8 * freedom + 3) * std::sqrt(freedom * std::log1p(t * t / freedom));
  return std::copysign(size, t);
}

}  // namespace

std::optional<Baseline> Baseline::Fit(absl::Span<const SeriesPoint> points,
                                      const SeriesPrior& prior) {
  const double n = static_cast<double>(points.size());
  if (points.size() < 2) return std::nullopt;
  Baseline fit;
  for (const SeriesPoint& point : points) fit.center_ += point.x / n;
  fit.slope_ = prior.slope;
  std::vector<double> residuals;
  for (const SeriesPoint& point : points) {
    residuals.push_back(point.y - prior.slope * (point.x - fit.center_));
  }
  fit.level_ = Median(residuals);

  for (int iteration = 0; iteration < kIterations; ++iteration) {
    for (size_t i = 0; i < points.size(); ++i) residuals[i] = points[i].y - fit.At(points[i].x);
    std::vector<double> sizes = residuals;
    for (double& size : sizes) size = std::abs(size);
    // Clips residuals at a multiple of their median and takes the variance: as robust as the
    // median, but it uses all points.
    const double cut =
        std::max(kHuber * kMadToSigma * Median(std::move(sizes)), 0.25 * kHuber * prior.scatter);
    double squares = 0;
    for (const double residual : residuals) {
      squares += std::pow(std::min(std::abs(residual), cut), 2) / kCutVariance;
    }
    const double freedom = std::max(n - 2, 0.0);
    const double seen = n > 2 ? squares / n * (n / freedom) : 0;
    fit.scatter_ =
        std::sqrt((prior.scatter_weight * prior.scatter * prior.scatter + freedom * seen) /
                  (prior.scatter_weight + freedom));
    fit.freedom_ = prior.scatter_weight + freedom;

    const double noise = fit.scatter_ * fit.scatter_;
    // Normal equations of [1, x - center], with the prior as an additional row.
    double s0 = 0, s1 = 0, s2 = 0, t0 = 0, t1 = 0;
    for (size_t i = 0; i < points.size(); ++i) {
      const double weight =
          std::min(1.0, kHuber * fit.scatter_ / std::max(std::abs(residuals[i]), 1e-300)) / noise;
      const double x = points[i].x - fit.center_;
      s0 += weight;
      s1 += weight * x;
      s2 += weight * x * x;
      t0 += weight * points[i].y;
      t1 += weight * x * points[i].y;
    }
    const double precision = 1 / (prior.slope_sigma * prior.slope_sigma);
    s2 += precision;
    t1 += precision * prior.slope;
    const double determinant = s0 * s2 - s1 * s1;
    fit.level_ = (s2 * t0 - s1 * t1) / determinant;
    fit.slope_ = (s0 * t1 - s1 * t0) / determinant;
    fit.covariance_ = {
        {{s2 / determinant, -s1 / determinant}, {-s1 / determinant, s0 / determinant}}};
  }
  return fit;
}

double Baseline::slope_stderr() const { return std::sqrt(covariance_[1][1]); }

void Baseline::Sums::Add(const Sums& other, double sign) {
  for (const auto member : {&Sums::snapshots, &Sums::x, &Sums::xx, &Sums::c, &Sums::cx, &Sums::cc,
                            &Sums::r, &Sums::rx, &Sums::cr}) {
    this->*member += sign * other.*member;
  }
}

Baseline::Sums Baseline::SumsOf(const SeriesPoint& point, double course, double most_sigmas) const {
  const auto& p = covariance_;
  const double x = point.x - center_;
  const double most =
      most_sigmas * std::sqrt(scatter_ * scatter_ + p[0][0] + 2 * x * p[0][1] + x * x * p[1][1]);
  const double r = std::clamp(point.y - At(point.x), -most, most);
  const double c = course;
  return {1, x, x * x, c, c * x, c * c, r, r * x, c * r};
}

// With residuals r, course c, design A of the baseline and its covariance P, V = s^2 I + A P A':
// size = c'V^-1 r / c'V^-1 c, variance 1 / c'V^-1 c. By Woodbury V^-1 needs a 2 x 2 inverse only.
Baseline::Change Baseline::Estimate(const Sums& sums) const {
  const double noise = scatter_ * scatter_;
  // M = P^-1 + A'A / s^2
  const auto& p = covariance_;
  const double determinant = p[0][0] * p[1][1] - p[0][1] * p[1][0];
  const double m00 = p[1][1] / determinant + sums.snapshots / noise;
  const double m01 = -p[0][1] / determinant + sums.x / noise;
  const double m11 = p[0][0] / determinant + sums.xx / noise;
  const double m = m00 * m11 - m01 * m01;
  // u = M^-1 (A'c / s^2)
  const double u0 = (m11 * sums.c - m01 * sums.cx) / (noise * m);
  const double u1 = (m00 * sums.cx - m01 * sums.c) / (noise * m);
  const double information = (sums.cc - (sums.c * u0 + sums.cx * u1)) / noise;
  const double score = (sums.cr - (sums.r * u0 + sums.rx * u1)) / noise;
  if (!(information > 0)) return {};
  Change change{score / information, 1 / std::sqrt(information)};
  change.sigmas = NormalOf(change.size / change.stderr_value, freedom_);
  return change;
}

Baseline::Change Baseline::Estimate(absl::Span<const SeriesPoint> points,
                                    absl::Span<const double> course) const {
  constexpr double kUnclipped = std::numeric_limits<double>::infinity();
  Sums sums;
  for (size_t i = 0; i < points.size(); ++i) sums.Add(SumsOf(points[i], course[i], kUnclipped));
  return Estimate(sums);
}

}  // namespace ptqwatch::internal
