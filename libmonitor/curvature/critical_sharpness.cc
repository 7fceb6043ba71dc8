#include "curvature/critical_sharpness.h"

#include <algorithm>
#include <cmath>

#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

constexpr double kSlopeStep = 0.25;
constexpr int kMostSecants = 6;
// The secant ends when it is this share of the slope from its zero; one more step is not evaluated.
constexpr double kCloseEnough = 0.005;
// Relative rounding of a mean loss in float32.
constexpr double kLossRounding = 1e-6;
// Without a bracket, the guess grows by at most this factor.
constexpr double kLargestGrowth = 2;

class Line {
 public:
  Line(LossSurface& surface, const Vector& d, const ExecutionContext& context)
      : surface_(surface), d_(d), context_(context) {}

  absl::StatusOr<double> LossAt(double t) {
    ++evaluations_;
    PTQWATCH_RETURN_IF_ERROR(t == 0 ? surface_.MoveTo(nullptr, 0) : surface_.MoveTo(&d_, t));
    return MeanLoss(surface_, context_);
  }
  int evaluations() const { return evaluations_; }

 private:
  LossSurface& surface_;
  const Vector& d_;
  const ExecutionContext& context_;
  int evaluations_ = 0;
};

// The t > 0 with L(sign t) = `base`, where `slope` > 0 is the fall per t at 0: secants of
// (L(sign t) - base) / t, which is -slope at 0.
absl::StatusOr<double> FindReturn(Line& line, double base, double slope, double sign,
                                  double guess) {
  double before = 0;
  double at_before = -slope;
  double low = 0;
  double high = 0;  // 0: not found yet
  double t = guess;
  for (int i = 0; i < kMostSecants; ++i) {
    PTQWATCH_ASSIGN_OR_RETURN(const double loss, line.LossAt(sign * t));
    const double at = (loss - base) / t;
    (at < 0 ? low : high) = t;
    const double change = at - at_before;
    double next = change == 0 ? t : t - at * (t - before) / change;
    if (std::abs(at) <= kCloseEnough * slope) return next > 0 ? next : t;
    before = t;
    at_before = at;
    const double most = high > 0 ? high : kLargestGrowth * low;
    if (!(next > low && next < most)) next = high > 0 ? (low + high) / 2 : most;
    t = next;
  }
  if (high > 0) return t;
  return absl::FailedPreconditionError(StrFormat(
      "no critical sharpness: the loss does not rise again within %.3g times the direction", low));
}

absl::StatusOr<CriticalSharpness> Find(Line& line, double squared_norm) {
  PTQWATCH_ASSIGN_OR_RETURN(const double base, line.LossAt(0));
  PTQWATCH_ASSIGN_OR_RETURN(const double ahead, line.LossAt(kSlopeStep));
  PTQWATCH_ASSIGN_OR_RETURN(const double behind, line.LossAt(-kSlopeStep));
  const double slope = (ahead - behind) / (2 * kSlopeStep);
  const double bend = (ahead + behind - 2 * base) / (kSlopeStep * kSlopeStep);
  const double rounding = kLossRounding * std::abs(base);
  if (std::abs(slope) * 2 * kSlopeStep <= rounding) {
    return absl::FailedPreconditionError(
        StrFormat("no critical sharpness: the slope %g along the direction is rounding", slope));
  }
  const double guess = bend > 0 ? 2 * std::abs(slope) / bend : kSlopeStep;
  PTQWATCH_ASSIGN_OR_RETURN(const double t,
                            FindReturn(line, base, std::abs(slope), slope > 0 ? -1 : 1, guess));
  // A parabola that returns at t dips by a quarter of slope times t.
  if (std::abs(slope) * t / 4 <= rounding) {
    return absl::FailedPreconditionError(StrFormat(
        "no critical sharpness: the loss dips by %g, which is rounding", std::abs(slope) * t / 4));
  }
  CriticalSharpness found;
  found.sharpness = 2 * std::abs(slope) / (t * squared_norm);
  found.rate = 2 / found.sharpness;
  found.scale = slope > 0 ? -t : t;
  found.loss_evaluations = line.evaluations();
  return found;
}

}  // namespace

absl::StatusOr<CriticalSharpness> FindCriticalSharpness(LossSurface& surface, const Vector& d,
                                                        const ExecutionContext& context) {
  const double squared_norm = surface.space().Dot(d, d);
  if (!(squared_norm > 0 && std::isfinite(squared_norm))) {
    return absl::FailedPreconditionError(
        StrCat("no critical sharpness: the direction has the squared norm ", squared_norm));
  }
  Line line(surface, d, context);
  absl::StatusOr<CriticalSharpness> found = Find(line, squared_norm);
  // After a failure too.
  const absl::Status back = surface.MoveTo(nullptr, 0);
  if (found.ok() && !back.ok()) return back;
  return found;
}

}  // namespace ptqwatch::internal
