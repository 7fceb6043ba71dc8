#include "curvature/loss_slice.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "ATen/ops/linspace.h"
#include "support/tensor_surface.h"

namespace ptqwatch::internal {
namespace loss_slice_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TensorSurface;

constexpr int64_t kSize = 40;

void Ignore(int64_t, int64_t) {}

// sum of curvature (x - bottom)^2 / 2, in `batches` equal shares; W is 0.5 everywhere.
struct Bowl {
  explicit Bowl(at::ScalarType dtype = at::kDouble, size_t batches = 2)
      : curvature(at::linspace(0.1, 2, kSize, dtype)),
        bottom((at::arange(kSize, dtype) * 0.7).sin()),
        x(at::full({kSize}, 0.5, dtype)),
        surface(
            {{"x", x}},
            [this, batches](size_t) { return Loss(x).div(static_cast<double>(batches)); }, batches),
        to_previous(surface.space().Zero()),
        to_quantized(surface.space().Zero()) {
    to_previous.elements.copy_((at::arange(kSize, dtype) * 0.3).cos());
    to_quantized.elements.copy_((at::arange(kSize, dtype) * 1.1).sin() * 0.2);
  }
  at::Tensor Loss(const at::Tensor& at) const {
    if (calls != nullptr) ++*calls;
    return (curvature * (at - bottom) * (at - bottom)).sum() / 2;
  }
  absl::StatusOr<LossSlice> Measure(const SliceOptions& options = {.points = 5}) {
    return MeasureSlice(surface, to_previous, to_quantized, options, Ignore, context);
  }
  bool AtHome() const { return at::equal(x.detach(), at::full_like(x.detach(), 0.5)); }

  ExecutionContext context;
  at::Tensor curvature;
  at::Tensor bottom;
  at::Tensor x;
  int* calls = nullptr;
  TensorSurface surface;
  Vector to_previous;
  Vector to_quantized;
};

TEST(MeasureSlice, PutsTheThreePointsInTheirPlace) {
  Bowl bowl;
  const auto slice = bowl.Measure();
  ASSERT_TRUE(slice.ok()) << slice.status();
  const double unit = 0.5 * std::sqrt(kSize);
  EXPECT_NEAR(slice->weight_norm, unit, 1e-12);
  EXPECT_EQ(slice->parameters, kSize);
  const at::Tensor p = bowl.to_previous.elements, q = bowl.to_quantized.elements;
  const double along = (p * q).sum().item<double>() / p.norm().item<double>();
  EXPECT_EQ(slice->current.x, 0);
  EXPECT_EQ(slice->current.y, 0);
  EXPECT_NEAR(slice->previous.x, p.norm().item<double>() / unit, 1e-12);
  EXPECT_EQ(slice->previous.y, 0);
  EXPECT_NEAR(slice->quantized.x, along / unit, 1e-12);
  // The distance to the quantized weights is that of the plane.
  EXPECT_NEAR(std::hypot(slice->quantized.x, slice->quantized.y), q.norm().item<double>() / unit,
              1e-12);
  EXPECT_GT(slice->quantized.y, 0);
  EXPECT_NEAR(slice->current.loss_nats, bowl.Loss(bowl.x).item<double>(), 1e-12);
  EXPECT_NEAR(slice->previous.loss_nats, bowl.Loss(bowl.x + p).item<double>(), 1e-12);
  EXPECT_NEAR(slice->quantized.loss_nats, bowl.Loss(bowl.x + q).item<double>(), 1e-12);
}

TEST(MeasureSlice, HasTheLossAtEveryGridPoint) {
  Bowl bowl;
  const auto slice = bowl.Measure({.points = 7, .margin = 0.4});
  ASSERT_TRUE(slice.ok()) << slice.status();
  ASSERT_EQ(slice->x.size(), 7u);
  ASSERT_EQ(slice->y.size(), 7u);
  ASSERT_EQ(slice->loss_nats.size(), 7u);
  const double unit = slice->weight_norm;
  const at::Tensor p = bowl.to_previous.elements, q = bowl.to_quantized.elements;
  const at::Tensor u1 = p / p.norm();
  const at::Tensor rest = q - u1 * (u1 * q).sum();
  const at::Tensor u2 = rest / rest.norm();
  for (size_t row = 0; row < 7; ++row) {
    ASSERT_EQ(slice->loss_nats[row].size(), 7u);
    for (size_t column = 0; column < 7; ++column) {
      const at::Tensor at =
          bowl.x.detach() + u1 * (slice->x[column] * unit) + u2 * (slice->y[row] * unit);
      EXPECT_NEAR(slice->loss_nats[row][column], bowl.Loss(at).item<double>(), 1e-10);
    }
  }
}

TEST(MeasureSlice, GridGoesBeyondThePointsByTheMargin) {
  Bowl bowl;
  const auto slice = bowl.Measure({.points = 2, .margin = 0.25});
  ASSERT_TRUE(slice.ok()) << slice.status();
  const double low = std::min(0.0, slice->quantized.x), high = slice->previous.x;
  EXPECT_NEAR(slice->x.front(), low - 0.25 * (high - low), 1e-12);
  EXPECT_NEAR(slice->x.back(), high + 0.25 * (high - low), 1e-12);
  EXPECT_NEAR(slice->y.front(), -0.25 * slice->quantized.y, 1e-12);
  EXPECT_NEAR(slice->y.back(), 1.25 * slice->quantized.y, 1e-12);
}

TEST(MeasureSlice, CoversAQuantizedPointOnEitherSideOfTheSnapshots) {
  for (const double along : {-3.0, 4.0}) {
    Bowl bowl;
    bowl.surface.space().Axpy(along, bowl.to_previous, bowl.to_quantized);
    const auto slice = bowl.Measure();
    ASSERT_TRUE(slice.ok()) << slice.status();
    for (const SlicePoint& point : {slice->current, slice->previous, slice->quantized}) {
      EXPECT_GT(point.x, slice->x.front());
      EXPECT_LT(point.x, slice->x.back());
    }
  }
}

TEST(MeasureSlice, IsTheSameTwiceAndCountsWhatItTook) {
  Bowl bowl(at::kFloat, /*batches=*/3);
  int calls = 0;
  bowl.calls = &calls;
  std::vector<std::pair<int64_t, int64_t>> progress;
  const auto first = MeasureSlice(
      bowl.surface, bowl.to_previous, bowl.to_quantized, {.points = 2},
      [&](int64_t done, int64_t all) { progress.emplace_back(done, all); }, bowl.context);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->loss_evaluations, 2 * 2 + 3);
  EXPECT_EQ(calls, 3 * (2 * 2 + 3));
  ASSERT_EQ(progress.size(), 7u);
  EXPECT_EQ(progress.front(), std::make_pair(int64_t{1}, int64_t{7}));
  EXPECT_EQ(progress.back(), std::make_pair(int64_t{7}, int64_t{7}));
  const auto second = bowl.Measure({.points = 2});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(first->loss_nats, second->loss_nats);
  EXPECT_EQ(first->x, second->x);
}

TEST(MeasureSlice, PutsTheWeightsBack) {
  Bowl bowl(at::kFloat);
  ASSERT_TRUE(bowl.Measure().ok());
  EXPECT_TRUE(bowl.AtHome());
}

TEST(MeasureSlice, RefusesPointsThatSpanNoPlane) {
  const auto refused = [](Bowl& bowl, const char* why) {
    const auto slice = bowl.Measure();
    EXPECT_EQ(slice.status().code(), absl::StatusCode::kFailedPrecondition) << slice.status();
    EXPECT_THAT(std::string(slice.status().message()), HasSubstr(why));
    EXPECT_TRUE(bowl.AtHome());
  };
  {
    Bowl bowl;
    bowl.to_previous.elements.zero_();
    refused(bowl, "those of the previous snapshot");
  }
  {
    Bowl bowl;
    bowl.to_quantized.elements.zero_();
    refused(bowl, "changes no weight");
  }
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    Bowl bowl(dtype);
    bowl.to_quantized.elements.copy_(bowl.to_previous.elements * -0.37);
    refused(bowl, "on the line");
  }
}

TEST(MeasureSlice, AxesAreOrthogonalIfTheDirectionsHardlyDiffer) {
  Bowl bowl(at::kFloat);
  const at::Tensor apart = bowl.to_quantized.elements.clone();
  bowl.to_quantized.elements.copy_(bowl.to_previous.elements + apart * 0.01);
  const auto slice = bowl.Measure();
  ASSERT_TRUE(slice.ok()) << slice.status();
  const double norm = bowl.surface.space().Norm(bowl.to_quantized) / slice->weight_norm;
  EXPECT_NEAR(std::hypot(slice->quantized.x, slice->quantized.y) / norm, 1, 1e-6);
  EXPECT_GT(slice->quantized.y, 0);
}

TEST(MeasureSlice, RefusesWeightsThatAreNotFinite) {
  Bowl bowl;
  bowl.to_quantized.elements[3] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(bowl.Measure().status().code(), absl::StatusCode::kDataLoss);
}

TEST(MeasureSlice, RefusesBadOptions) {
  Bowl bowl;
  for (const int points : {-1, 1, 102}) {
    const auto slice = bowl.Measure({.points = points});
    EXPECT_EQ(slice.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(slice.status().message()),
                HasSubstr("points = " + std::to_string(points)));
  }
  for (const double margin : {-0.1, std::nan("")}) {
    EXPECT_THAT(std::string(bowl.Measure({.points = 3, .margin = margin}).status().message()),
                HasSubstr("margin = "));
  }
}

// x[0] is 0.5 at W and moves with both directions; the loss is no number beyond `limit`.
struct Cliff {
  explicit Cliff(double limit)
      : x(at::full({2}, 0.5, at::kDouble)), surface({{"x", x}}, [this, limit](size_t) {
          const double there = x[0].item<double>();
          return x.sum() * (there > limit ? std::nan("") : 1.0);
        }) {}
  absl::StatusOr<LossSlice> Measure() {
    Vector p = surface.space().Zero(), q = surface.space().Zero();
    p.elements[0] = 1;
    q.elements[1] = 1;
    return MeasureSlice(surface, p, q, {.points = 3, .margin = 0.5}, Ignore, context);
  }
  ExecutionContext context;
  at::Tensor x;
  TensorSurface surface;
};

TEST(MeasureSlice, LeavesALossThatIsNotFiniteAsNaN) {
  Cliff cliff(/*limit=*/1.2);
  const auto slice = cliff.Measure();
  ASSERT_TRUE(slice.ok()) << slice.status();
  EXPECT_THAT(slice->x, ElementsAre(-0.5 / slice->weight_norm, 0.5 / slice->weight_norm,
                                    1.5 / slice->weight_norm));
  for (const std::vector<double>& row : slice->loss_nats) {
    EXPECT_TRUE(std::isfinite(row[0]));
    EXPECT_TRUE(std::isfinite(row[1]));
    EXPECT_TRUE(std::isnan(row[2]));
  }
  EXPECT_TRUE(std::isnan(slice->previous.loss_nats));
  EXPECT_TRUE(std::isfinite(slice->quantized.loss_nats));
}

TEST(MeasureSlice, FailsIfTheSnapshotItselfHasNoLoss) {
  Cliff cliff(/*limit=*/0.1);
  EXPECT_EQ(cliff.Measure().status().code(), absl::StatusCode::kDataLoss);
}

TEST(MeasureSlice, IsCancelledAfterTheBatchItIsAt) {
  Bowl bowl(at::kDouble, /*batches=*/4);
  int calls = 0;
  bowl.calls = &calls;
  const auto slice = MeasureSlice(
      bowl.surface, bowl.to_previous, bowl.to_quantized, {.points = 9},
      [&](int64_t done, int64_t) {
        if (done == 5) bowl.context.cancel.Cancel();
      },
      bowl.context);
  EXPECT_EQ(slice.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(calls, 5 * 4);
  EXPECT_TRUE(bowl.AtHome());
}

TEST(MeasureSlice, PutsTheWeightsBackIfTheLossThrows) {
  at::Tensor x = at::full({2}, 0.5, at::kDouble);
  int calls = 0;
  TensorSurface surface({{"x", x}}, [&](size_t) -> at::Tensor {
    if (++calls == 6) throw std::runtime_error("no more");
    return x.sum();
  });
  Vector p = surface.space().Zero(), q = surface.space().Zero();
  p.elements[0] = 1;
  q.elements[1] = 1;
  ExecutionContext context;
  EXPECT_THROW(static_cast<void>(MeasureSlice(surface, p, q, {.points = 3}, Ignore, context)),
               std::runtime_error);
  EXPECT_TRUE(at::equal(x.detach(), at::full({2}, 0.5, at::kDouble)));
}

}  // namespace loss_slice_test
}  // namespace ptqwatch::internal
