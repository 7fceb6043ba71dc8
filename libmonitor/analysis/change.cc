#include "analysis/change.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace ptqwatch::internal {
namespace {

// Number of newest snapshots at which a jump may begin.
constexpr size_t kLongestJump = 8;
constexpr double kMostSigmas = 5;
// Error and curvature scatter together slightly. The sum of two standard normals with this
// correlation has the standard deviation sqrt(2 + 2 rho).
constexpr double kCorrelation = 0.3;
// Curvature supports the evidence of the error but cannot replace it: it counts for at most this
// many sigmas more.
constexpr double kMostLead = 2.0;

double Confirmed(const Change& change, absl::Span<const double> course) {
  if (change.tested.size() < 2) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (size_t out = 0; out < change.tested.size(); ++out) {
    std::vector<size_t> rest = change.tested;
    std::vector<double> rest_course(course.begin(), course.end());
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(out));
    rest_course.erase(rest_course.begin() + static_cast<std::ptrdiff_t>(out));
    const auto estimate = change.errors->Estimate(rest, rest_course, kMostSigmas);
    least = std::min(least, estimate ? estimate->sigmas : 0);
  }
  return least;
}

void Evaluate(const History& history, absl::Span<const double> course, Change& change) {
  const std::vector<Point>& points = history.points();
  change.errors = Composite::Fit(points, change.reference, SeriesKind::kError);
  change.curvatures = Composite::Fit(points, change.reference, SeriesKind::kCurvature);
  if (change.errors) {
    change.error = change.errors->Estimate(change.tested, course, kMostSigmas);
  }
  if (change.curvatures) {
    change.curvature = change.curvatures->Estimate(change.tested, course, kMostSigmas);
  }
  const double error = change.error_sigmas();
  const double curvature = std::min(change.curvature_sigmas(), error + kMostLead);
  change.sigmas = error;
  if (change.error && change.curvature) {
    change.sigmas = std::max(error, (error + curvature) / std::sqrt(2 + 2 * kCorrelation));
  }
  if (change.errors) change.confirmed_sigmas = Confirmed(change, course);
}

}  // namespace

std::optional<Change> ChangeInDecay(const History& history) {
  const std::vector<Point>& points = history.points();
  Change change;
  change.reference = history.Plateau(points.size());
  if (change.reference.size() < Composite::kMinReference) return std::nullopt;
  std::vector<double> course;
  for (size_t i = change.reference.back() + 1; i < points.size(); ++i) {
    change.tested.push_back(i);
    course.push_back(points[i].decayed);
  }
  if (change.tested.empty()) return std::nullopt;
  Evaluate(history, course, change);
  if (!change.error) return std::nullopt;
  return change;
}

Change JumpSince(const History& history, std::vector<size_t> reference,
                 std::vector<size_t> tested) {
  Change change;
  change.reference = std::move(reference);
  change.tested = std::move(tested);
  const std::vector<double> course(change.tested.size(), 1.0);
  Evaluate(history, course, change);
  return change;
}

std::optional<Change> Jump(const History& history) {
  const size_t end = history.points().size();
  const std::vector<bool> alarmed = history.Alarmed();
  std::optional<Change> best;
  for (size_t length = 1; length <= std::min(kLongestJump, end); ++length) {
    if (alarmed[end - length]) break;  // this jump has been reported
    const size_t first = end - length;
    std::vector<size_t> reference = history.Plateau(first);
    if (reference.size() < Composite::kMinReference) break;
    std::vector<size_t> tested(length);
    std::iota(tested.begin(), tested.end(), first);
    Change change = JumpSince(history, std::move(reference), std::move(tested));
    if (!change.error) continue;
    const auto rank = [](const Change& jump) {
      return std::make_pair(jump.confirmed_sigmas >= kConfirmedSigmas, jump.sigmas);
    };
    if (!best || rank(change) > rank(*best)) best = std::move(change);
  }
  return best;
}

}  // namespace ptqwatch::internal
