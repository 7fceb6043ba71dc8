#include "curvature/lanczos.h"

#include <gmock/gmock.h>

#include "ATen/TensorOperators.h"
#include "ATen/ops/full.h"
#include "ATen/ops/linspace.h"
#include "ATen/ops/zeros.h"
#include "support/tensor_surface.h"

namespace ptqwatch::internal {
namespace {

using testing::TensorSurface;

// H = diag(values): loss = x' H x / 2.
struct Quadratic {
  explicit Quadratic(const at::Tensor& values)
      : x(at::full({values.numel()}, 0.5, values.options())),
        surface({{"x", x}}, [this, values](size_t) { return 0.5 * (x * x * values).sum(); }) {
    auto created = HessianOperator::Create(context, &surface, HessianMode::kRetainedGraph);
    EXPECT_TRUE(created.ok()) << created.status();
    hessian = *std::move(created);
  }
  Eigenpair Find(const LanczosOptions& options, const Vector& start = Vector()) {
    auto pair = ExtremeEigenpair(context, *hessian, start, options);
    EXPECT_TRUE(pair.ok()) << pair.status();
    return *std::move(pair);
  }
  ExecutionContext context;
  at::Tensor x;
  TensorSurface surface;
  std::unique_ptr<HessianOperator> hessian;
};

at::Tensor Spectrum(int64_t size, double low, double high) {
  // A bulk near zero and one outlier at each end, as Hessians have.
  at::Tensor values = at::linspace(-0.1, 0.3, size, at::kDouble);
  values[0] = low;
  values[size - 1] = high;
  return values;
}

TEST(Lanczos, FindsBothEndsOfTheSpectrum) {
  Quadratic quadratic(Spectrum(300, -3, 2));
  LanczosOptions options;
  options.residual_ratio = 1e-4;
  const Eigenpair top = quadratic.Find(options);
  EXPECT_NEAR(top.value, 2, 1e-6);
  EXPECT_TRUE(top.converged);
  EXPECT_NEAR(std::abs(top.vector.elements[299].item<double>()), 1, 1e-6);
  options.end = SpectrumEnd::kBottom;
  EXPECT_NEAR(quadratic.Find(options).value, -3, 1e-6);
}

TEST(Lanczos, ResidualIsTheTrueOne) {
  Quadratic quadratic(Spectrum(300, -1, 2));
  LanczosOptions options;
  options.residual_ratio = 0.2;
  const Eigenpair top = quadratic.Find(options);
  const VectorSpace& space = quadratic.hessian->space();
  Vector rest = space.Zero();
  ASSERT_TRUE(quadratic.hessian->Apply(quadratic.context, top.vector, rest).ok());
  space.Axpy(-top.value, top.vector, rest);
  EXPECT_NEAR(space.Norm(rest) / std::abs(top.value), top.residual_ratio, 1e-8);
  EXPECT_LE(top.residual_ratio, 0.2);
}

TEST(Lanczos, AWarmStartSavesProducts) {
  Quadratic before(Spectrum(2000, -1, 2));
  const Eigenpair old = before.Find({});
  Quadratic after(Spectrum(2000, -1, 2.2));
  const int cold = after.Find({}).products;
  const int warm = after.Find({}, old.vector).products;
  EXPECT_LT(warm, cold);
  EXPECT_LE(warm, 3);
}

TEST(Lanczos, AStartThatIsAnotherEigenvectorDoesNotHideTheTop) {
  Quadratic quadratic(Spectrum(300, -1, 2));
  LanczosOptions options;
  options.residual_ratio = 1e-3;
  Vector start = quadratic.hessian->space().Zero();
  start.elements[150] = 1;
  EXPECT_NEAR(quadratic.Find(options, start).value, 2, 1e-3);
}

TEST(Lanczos, GoesOnFromTheBestVectorWhenTheBasisIsFull) {
  Quadratic quadratic(Spectrum(300, -1, 2));
  LanczosOptions options;
  options.residual_ratio = 1e-3;
  options.max_basis = 3;
  options.max_products = 200;
  const Eigenpair top = quadratic.Find(options);
  EXPECT_NEAR(top.value, 2, 1e-4);
  EXPECT_GT(top.products, 3);
}

TEST(Lanczos, SaysWhenItDidNotConverge) {
  Quadratic quadratic(at::linspace(0, 1, 500, at::kDouble));
  LanczosOptions options;
  options.residual_ratio = 1e-9;
  options.max_products = 5;
  const Eigenpair top = quadratic.Find(options);
  EXPECT_FALSE(top.converged);
  EXPECT_EQ(top.products, 5);
  EXPECT_GT(top.residual_ratio, 1e-9);
}

TEST(Lanczos, TakesAZeroHessianAndASingleParameter) {
  Quadratic zero(at::zeros({20}, at::kDouble));
  const Eigenpair nothing = zero.Find({});
  EXPECT_EQ(nothing.value, 0);
  EXPECT_EQ(nothing.residual_ratio, 0);
  EXPECT_TRUE(nothing.converged);
  Quadratic one(at::full({1}, -4.0, at::kDouble));
  EXPECT_DOUBLE_EQ(one.Find({}).value, -4);
}

TEST(Lanczos, EndsWhenCancelled) {
  Quadratic quadratic(Spectrum(300, -1, 2));
  quadratic.context.cancel.Cancel();
  const auto pair = ExtremeEigenpair(quadratic.context, *quadratic.hessian, Vector(), {});
  EXPECT_TRUE(absl::IsCancelled(pair.status()));
}

}  // namespace
}  // namespace ptqwatch::internal
