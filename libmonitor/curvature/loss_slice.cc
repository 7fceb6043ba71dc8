#include "curvature/loss_slice.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

// Directions with a smaller angle differ by little more than float32 rounding.
constexpr double kSmallestSine = 1e-5;

// Moves the surface back to W at the end of the scope.
class PutBack {
 public:
  explicit PutBack(LossSurface& surface) : surface_(surface) {}
  ~PutBack() {
    try {
      surface_.MoveTo(nullptr, 0).IgnoreError();
    } catch (...) {
      // The device is broken; the next use of the surface reports it.
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
        "the weights of the previous snapshot or the quantized ones are not finite");
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
  // Twice, because the first pass leaves a rounding error along u1, which is large if u2 is small.
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

// The axis from `low` to `high`, with the margin on both sides.
std::vector<double> Axis(double low, double high, const SliceOptions& options) {
  const double extent = high - low;
  const double first = low - options.margin * extent;
  const double length = (1 + 2 * options.margin) * extent;
  std::vector<double> coordinates;
  for (int i = 0; i < options.points; ++i) {
    coordinates.push_back(first + length * i / (options.points - 1));
  }
  return coordinates;
}

// The mean loss, or NaN if it is not finite.
absl::StatusOr<double> LossOrNan(LossSurface& surface, const ExecutionContext& context) {
  absl::StatusOr<double> loss = MeanLoss(surface, context);
  if (absl::IsDataLoss(loss.status())) return std::numeric_limits<double>::quiet_NaN();
  return loss;
}

absl::Status CheckOptions(const SliceOptions& options) {
  if (options.points < kMinSlicePoints || options.points > kMaxSlicePoints) {
    return absl::InvalidArgumentError(StrCat("points = ", options.points, ": must be from ",
                                             kMinSlicePoints, " to ", kMaxSlicePoints));
  }
  if (!(options.margin >= 0 && std::isfinite(options.margin))) {
    return absl::InvalidArgumentError(
        StrCat("margin = ", options.margin, ": must be 0 or positive"));
  }
  return absl::OkStatus();
}

// Computes the losses of one slice, and counts and reports each.
class Losses {
 public:
  Losses(LossSurface& surface, int64_t all, SliceProgress progress, const ExecutionContext& context)
      : surface_(surface), all_(all), progress_(progress), context_(context) {}

  // The loss at W + direction, or at W if `direction` is null.
  absl::StatusOr<double> At(const Vector* direction) {
    PTQWATCH_RETURN_IF_ERROR(surface_.MoveTo(direction, 1));
    PTQWATCH_ASSIGN_OR_RETURN(const double loss, LossOrNan(surface_, context_));
    progress_(++done_, all_);
    return loss;
  }
  int64_t done() const { return done_; }

 private:
  LossSurface& surface_;
  const int64_t all_;
  int64_t done_ = 0;
  SliceProgress progress_;
  const ExecutionContext& context_;
};

absl::Status MeasurePoints(const Plane& plane, const Vector& to_previous,
                           const Vector& to_quantized, Losses& losses, LossSlice& slice) {
  const double unit = slice.weight_norm;
  PTQWATCH_ASSIGN_OR_RETURN(const double current, losses.At(nullptr));
  if (std::isnan(current)) {
    return absl::DataLossError("the loss on the curvature batch is not finite");
  }
  PTQWATCH_ASSIGN_OR_RETURN(const double previous, losses.At(&to_previous));
  PTQWATCH_ASSIGN_OR_RETURN(const double quantized, losses.At(&to_quantized));
  slice.current = {0, 0, current};
  slice.previous = {plane.previous_x / unit, 0, previous};
  slice.quantized = {plane.quantized_x / unit, plane.quantized_y / unit, quantized};
  return absl::OkStatus();
}

absl::Status MeasureGrid(const VectorSpace& space, const Plane& plane, const SliceOptions& options,
                         Losses& losses, LossSlice& slice) {
  const std::vector<double> x = Axis(std::min(0.0, plane.quantized_x),
                                     std::max(plane.previous_x, plane.quantized_x), options);
  const std::vector<double> y = Axis(0, plane.quantized_y, options);
  for (double b : y) {
    Vector row = space.Copy(plane.u2);
    space.Scale(b, row);
    std::vector<double>& along_row = slice.loss_nats.emplace_back();
    for (double a : x) {
      Vector direction = space.Copy(row);
      space.Axpy(a, plane.u1, direction);
      PTQWATCH_ASSIGN_OR_RETURN(const double loss, losses.At(&direction));
      along_row.push_back(loss);
    }
  }
  for (double a : x) slice.x.push_back(a / slice.weight_norm);
  for (double b : y) slice.y.push_back(b / slice.weight_norm);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LossSlice> MeasureSlice(LossSurface& surface, const Vector& to_previous,
                                       const Vector& to_quantized, const SliceOptions& options,
                                       SliceProgress progress, const ExecutionContext& context) {
  PTQWATCH_RETURN_IF_ERROR(CheckOptions(options));
  const std::chrono::nanoseconds begin = context.clock->Monotonic();
  LossSlice slice;
  slice.parameters = surface.space().dimension();
  slice.weight_norm = surface.WeightNorm();
  if (!(slice.weight_norm > 0 && std::isfinite(slice.weight_norm))) {
    return absl::DataLossError(StrCat("the norm of the weights is ", slice.weight_norm));
  }
  PTQWATCH_ASSIGN_OR_RETURN(const Plane plane,
                            SpanPlane(surface.space(), to_previous, to_quantized));
  const PutBack put_back(surface);
  Losses losses(surface, SlicePoints(options.points), progress, context);
  PTQWATCH_RETURN_IF_ERROR(MeasurePoints(plane, to_previous, to_quantized, losses, slice));
  PTQWATCH_RETURN_IF_ERROR(MeasureGrid(surface.space(), plane, options, losses, slice));
  slice.loss_evaluations = losses.done();
  slice.seconds = std::chrono::duration<double>(context.clock->Monotonic() - begin).count();
  return slice;
}

}  // namespace ptqwatch::internal
