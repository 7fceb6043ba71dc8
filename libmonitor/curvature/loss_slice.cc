#include "curvature/loss_slice.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

// Directions closer than this to each other differ by little more than float32's rounding.
constexpr double kSmallestSine = 1e-5;

class PutBack {
 public:
  explicit PutBack(LossSurface& surface) : surface_(surface) {}
  ~PutBack() {
    try {
      surface_.MoveTo(nullptr, 0).IgnoreError();
    } catch (...) {
      // A broken device: whoever owns the surface notices when it is used again.
    }
  }
  PutBack(const PutBack&) = delete;
  PutBack& operator=(const PutBack&) = delete;

 private:
  LossSurface& surface_;
};

struct Plane {
  Vector u1;
  Vector u2;
  double previous_x = 0;
  double quantized_x = 0;
  double quantized_y = 0;
};

absl::StatusOr<Plane> SpanPlane(const VectorSpace& space, const Vector& to_previous,
                                const Vector& to_quantized) {
  if (!space.IsFinite(to_previous) || !space.IsFinite(to_quantized)) {
    return absl::DataLossError(
        "the weights of the previous snapshot or the quantized ones are "
        "not finite");
  }
  Plane plane;
  plane.previous_x = space.Norm(to_previous);
  const double quantized = space.Norm(to_quantized);
  if (plane.previous_x == 0) {
    return absl::FailedPreconditionError(
        "no plane: the weights are those of the previous snapshot");
  }
  if (quantized == 0) {
    return absl::FailedPreconditionError("no plane: quantization changes no weight");
  }
  plane.u1 = space.Copy(to_previous);
  space.Scale(1 / plane.previous_x, plane.u1);
  plane.u2 = space.Copy(to_quantized);
  // Twice: the first time leaves a rounding error along u1, large where little is orthogonal.
  for (int pass = 0; pass < 2; ++pass) {
    space.Axpy(-space.Dot(plane.u1, plane.u2), plane.u1, plane.u2);
  }
  const double orthogonal = space.Norm(plane.u2);
  if (orthogonal <= kSmallestSine * quantized) {
    return absl::FailedPreconditionError(
        "no plane: the quantized weights lie on the line through the two snapshots");
  }
  space.Scale(1 / orthogonal, plane.u2);
  plane.quantized_x = space.Dot(plane.u1, to_quantized);
  plane.quantized_y = space.Dot(plane.u2, to_quantized);
  return plane;
}

// From `low` to `high` with the margin on both sides.
std::vector<double> Axis(double low, double high, const SliceOptions& options) {
  const double extent = high - low;
  const double first = low - options.margin * extent;
  const double length = (1 + 2 * options.margin) * extent;
  std::vector<double> places;
  for (int i = 0; i < options.points; ++i) {
    places.push_back(first + length * i / (options.points - 1));
  }
  return places;
}

// NaN where the loss is not finite.
absl::StatusOr<double> LossOrNan(LossSurface& surface, const ExecutionContext& context) {
  absl::StatusOr<double> loss = MeanLoss(surface, context);
  if (absl::IsDataLoss(loss.status())) return std::numeric_limits<double>::quiet_NaN();
  return loss;
}

}  // namespace

absl::StatusOr<LossSlice> MeasureSlice(LossSurface& surface, const Vector& to_previous,
                                       const Vector& to_quantized, const SliceOptions& options,
                                       SliceProgress progress, const ExecutionContext& context) {
  if (options.points < kMinSlicePoints || options.points > kMaxSlicePoints) {
    return absl::InvalidArgumentError(StrCat("points = ", options.points, ": must be from ",
                                             kMinSlicePoints, " to ", kMaxSlicePoints));
  }
  if (!(options.margin >= 0 && std::isfinite(options.margin))) {
    return absl::InvalidArgumentError(
        StrCat("margin = ", options.margin, ": must be 0 or positive"));
  }
  const std::chrono::nanoseconds begin = context.clock->Monotonic();
  const VectorSpace& space = surface.space();
  LossSlice slice;
  slice.parameters = space.dimension();
  slice.weight_norm = surface.WeightNorm();
  if (!(slice.weight_norm > 0 && std::isfinite(slice.weight_norm))) {
    return absl::DataLossError(StrCat("the norm of the weights is ", slice.weight_norm));
  }
  absl::StatusOr<Plane> plane = SpanPlane(space, to_previous, to_quantized);
  if (!plane.ok()) return plane.status();

  const PutBack put_back(surface);
  const int64_t all = SlicePoints(options.points);
  const auto measure = [&](const Vector* direction) -> absl::StatusOr<double> {
    if (absl::Status status = surface.MoveTo(direction, 1); !status.ok()) return status;
    absl::StatusOr<double> loss = LossOrNan(surface, context);
    if (loss.ok()) progress(++slice.loss_evaluations, all);
    return loss;
  };
  const auto measure_point = [&](const Vector* direction, double x, double y, SlicePoint& point) {
    const absl::StatusOr<double> loss = measure(direction);
    if (!loss.ok()) return loss.status();
    point = {x / slice.weight_norm, y / slice.weight_norm, *loss};
    return absl::OkStatus();
  };
  if (absl::Status status = measure_point(nullptr, 0, 0, slice.current); !status.ok()) {
    return status;
  }
  if (std::isnan(slice.current.loss_nats)) {
    return absl::DataLossError("the loss on the curvature batch is not finite");
  }
  if (absl::Status status = measure_point(&to_previous, plane->previous_x, 0, slice.previous);
      !status.ok()) {
    return status;
  }
  if (absl::Status status =
          measure_point(&to_quantized, plane->quantized_x, plane->quantized_y, slice.quantized);
      !status.ok()) {
    return status;
  }

  const std::vector<double> x = Axis(std::min(0.0, plane->quantized_x),
                                     std::max(plane->previous_x, plane->quantized_x), options);
  const std::vector<double> y = Axis(0, plane->quantized_y, options);
  for (double b : y) {
    Vector row = space.Copy(plane->u2);
    space.Scale(b, row);
    std::vector<double>& losses = slice.loss_nats.emplace_back();
    for (double a : x) {
      Vector direction = space.Copy(row);
      space.Axpy(a, plane->u1, direction);
      const absl::StatusOr<double> loss = measure(&direction);
      if (!loss.ok()) return loss.status();
      losses.push_back(*loss);
    }
  }
  for (double a : x) slice.x.push_back(a / slice.weight_norm);
  for (double b : y) slice.y.push_back(b / slice.weight_norm);
  slice.seconds = std::chrono::duration<double>(context.clock->Monotonic() - begin).count();
  return slice;
}

}  // namespace ptqwatch::internal
