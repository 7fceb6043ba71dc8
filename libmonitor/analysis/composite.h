#ifndef PTQWATCH_ANALYSIS_COMPOSITE_H_
#define PTQWATCH_ANALYSIS_COMPOSITE_H_

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "analysis/baseline.h"
#include "analysis/history.h"

namespace ptqwatch::internal {

/// All series of one kind as one: at each snapshot the mean of their distances from their own
/// baselines, weighted by how little each scatters. Series of the same weights scatter together, so
/// that the scatter of the mean is learnt from the mean itself.
class Composite {
 public:
  /// `reference`: the snapshots of the plateau. nullopt where fewer than `kMinReference` of them
  /// have a series of this kind.
  static std::optional<Composite> Fit(const std::vector<Point>& points,
                                      absl::Span<const size_t> reference, SeriesKind kind);
  static constexpr size_t kMinReference = 4;

  /// A change of known course since the plateau; nullopt where no snapshot of `tested` has a value.
  /// Residuals are cut off at `most_sigmas`.
  std::optional<Baseline::Change> Estimate(absl::Span<const size_t> tested,
                                           absl::Span<const double> course,
                                           double most_sigmas) const;
  /// The same for one of its series.
  std::optional<Baseline::Change> EstimateSeries(const std::string& name,
                                                 absl::Span<const size_t> tested,
                                                 absl::Span<const double> course) const;

  const std::map<std::string, Baseline>& series() const { return series_; }
  const Baseline& baseline() const { return *baseline_; }

 private:
  Composite(const std::vector<Point>& points, SeriesKind kind) : points_(&points), kind_(kind) {}
  std::optional<double> Distance(size_t index) const;

  const std::vector<Point>* points_;
  SeriesKind kind_;
  double center_ = 0;
  std::map<std::string, Baseline> series_;
  std::optional<Baseline> baseline_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_ANALYSIS_COMPOSITE_H_
