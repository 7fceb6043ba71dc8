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
// In a longer decay every second, fourth, ... snapshot is tested, and the newest: hundreds would
// outweigh what is known about the slope of the baseline, which would then explain any rise.
constexpr size_t kMostTested = 32;
constexpr double kMostSigmas = 5;
// A likelihood ratio of one parameter: half of the chi-squared distribution's quantile.
constexpr double kInterval95 = 1.92;
// Error and curvature scatter together slightly. The sum of two standard normals with this
// correlation has the standard deviation sqrt(2 + 2 rho).
constexpr double kCorrelation = 0.3;
// Curvature supports the evidence of the error but cannot replace it: it counts for at most this
// many sigmas more.
constexpr double kMostLead = 2.0;

// One for each tested snapshot; nullopt if it has no value.
using Contributions = std::vector<std::optional<Baseline::Sums>>;

Contributions ContributionsTo(const std::optional<Composite>& composite, const Change& change,
                              absl::Span<const double> course) {
  Contributions each(change.tested.size());
  for (size_t i = 0; composite && i < each.size(); ++i) {
    each[i] = composite->SumsOf(change.tested[i], course[i], kMostSigmas);
  }
  return each;
}

std::optional<Baseline::Change> Estimate(const std::optional<Composite>& composite,
                                         const Baseline::Sums& sums) {
  if (!composite || sums.snapshots == 0) return std::nullopt;
  return composite->baseline().Estimate(sums);
}

// Estimates the change from the contributions, and the evidence of error and curvature together.
void Judge(const Baseline::Sums& errors, const Baseline::Sums& curvatures, Change& change) {
  change.error = Estimate(change.errors, errors);
  change.curvature = Estimate(change.curvatures, curvatures);
  const double error = change.error_sigmas();
  const double curvature = std::min(change.curvature_sigmas(), error + kMostLead);
  change.sigmas = error;
  if (change.error && change.curvature) {
    change.sigmas = std::max(error, (error + curvature) / std::sqrt(2 + 2 * kCorrelation));
  }
}

Baseline::Sums Total(const Contributions& each) {
  Baseline::Sums total;
  for (const auto& one : each) {
    if (one) total.Add(*one);
  }
  return total;
}

double Confirmed(const Change& change, const Contributions& errors, const Baseline::Sums& total) {
  if (errors.size() < 2) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& out : errors) {
    Baseline::Sums rest = total;
    if (out) rest.Add(*out, -1);
    const auto estimate = Estimate(change.errors, rest);
    least = std::min(least, estimate ? estimate->sigmas : 0);
  }
  return least;
}

void Evaluate(const History& history, absl::Span<const double> course, Change& change) {
  const std::vector<Point>& points = history.points();
  change.errors = Composite::Fit(points, change.reference, SeriesKind::kError);
  change.curvatures = Composite::Fit(points, change.reference, SeriesKind::kCurvature);
  const Contributions errors = ContributionsTo(change.errors, change, course);
  const Baseline::Sums total = Total(errors);
  Judge(total, Total(ContributionsTo(change.curvatures, change, course)), change);
  if (change.errors) change.confirmed_sigmas = Confirmed(change, errors, total);
}

}  // namespace

std::optional<Change> ChangeInDecay(const History& history) {
  const std::vector<Point>& points = history.points();
  Change change;
  change.reference = history.Plateau(points.size());
  if (change.reference.size() < Composite::kMinReference) return std::nullopt;
  const size_t first = change.reference.back() + 1;
  if (first >= points.size()) return std::nullopt;
  size_t stride = 1;
  while ((points.size() - first) / stride > kMostTested) stride *= 2;
  for (size_t i = first; i < points.size(); i += stride) change.tested.push_back(i);
  if (change.tested.back() + 1 != points.size()) change.tested.push_back(points.size() - 1);
  std::vector<double> course;
  for (const size_t i : change.tested) course.push_back(points[i].decayed);
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

Change HigherLevel(const Change& change) {
  const std::vector<double> level(change.tested.size(), 1.0);
  const Contributions errors = ContributionsTo(change.errors, change, level);
  const Contributions curvatures = ContributionsTo(change.curvatures, change, level);
  Baseline::Sums error_sums, curvature_sums;
  size_t best = change.tested.size();
  Change since = change;
  Change jump = change;
  for (size_t first = change.tested.size(); first > 0; --first) {
    if (const auto& one = errors[first - 1]) error_sums.Add(*one);
    if (const auto& one = curvatures[first - 1]) curvature_sums.Add(*one);
    Judge(error_sums, curvature_sums, jump);
    if (best < change.tested.size() && jump.sigmas < since.sigmas) continue;
    best = first - 1;
    since.error = jump.error;
    since.curvature = jump.curvature;
    since.sigmas = jump.sigmas;
  }
  since.tested.erase(since.tested.begin(),
                     since.tested.begin() + static_cast<std::ptrdiff_t>(best));
  since.confirmed_sigmas = 0;
  return since;
}

Onset OnsetInDecay(const History& history, const Change& change) {
  const std::vector<Point>& points = history.points();
  std::vector<double> likelihoods;  // of a rise that begins with the i-th tested snapshot
  double lost = points[change.reference.back()].decayed;
  for (const size_t first : change.tested) {
    std::vector<double> course;
    for (const size_t i : change.tested) {
      course.push_back(i < first ? 0 : std::max(points[i].decayed - lost, 0.0));
    }
    double likelihood = 0;
    for (const auto* composite : {&change.errors, &change.curvatures}) {
      if (points[first].decayed <= lost) break;  // it lost nothing: no ramp begins there
      const auto ramp = Estimate(*composite, Total(ContributionsTo(*composite, change, course)));
      if (ramp && ramp->sigmas > 0) likelihood += ramp->sigmas * ramp->sigmas / 2;
    }
    likelihoods.push_back(likelihood);
    lost = points[first].decayed;
  }
  const auto best = std::max_element(likelihoods.begin(), likelihoods.end());
  const auto likely = [&](double likelihood) { return likelihood >= *best - kInterval95; };
  const auto earliest = std::find_if(likelihoods.begin(), best, likely);
  const auto latest = std::find_if(likelihoods.rbegin(), likelihoods.rend(), likely).base() - 1;
  const auto at = [&](auto place) {
    return change.tested[static_cast<size_t>(place - likelihoods.begin())];
  };
  return {.first = at(best), .earliest = at(earliest), .latest = at(latest)};
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
