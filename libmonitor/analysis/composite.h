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

/// Combines all series of one kind: at each snapshot, the mean of their distances from their own
/// baselines, with more weight for series that scatter less. Series measured on the same weights
/// scatter together, so the scatter of the mean is estimated from the mean itself.
class Composite {
 public:
  /// `reference` lists the snapshots of the plateau. nullopt if fewer than `kMinReference` of them
  /// have a series of this kind.
  static std::optional<Composite> Fit(const std::vector<Point>& points,
                                      absl::Span<const size_t> reference, SeriesKind kind);
  static constexpr size_t kMinReference = 4;

  /// The contributions of a snapshot to a change with this course; nullopt if it has no value. Its
  /// residual is clipped at `most_sigmas`.
  std::optional<Baseline::Sums> SumsOf(size_t index, double course, double most_sigmas) const;
  /// A change of a single series with a known course since the plateau; nullopt if no snapshot of
  /// `tested` has a value.
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
