#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <utility>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/full.h"
#include "ATen/ops/linspace.h"
#include "ATen/ops/zeros.h"
#include "curvature/eigenpair.h"
#include "curvature/hessian_operator.h"
#include "support/tensor_surface.h"

namespace ptqwatch::internal {
namespace lanczos_test {

using testing::TensorSurface;

// H = diag(values): loss = x' H x / 2.
struct Quadratic {
  explicit Quadratic(const at::Tensor& values)
      : x(at::full({values.numel()}, 0.5, values.options())),
        surface({{"x", x}}, [this, values](size_t) { return 0.5 * (x * x * values).sum(); }) {
    auto created = HessianOperator::Create(&surface, HessianMode::kRetainedGraph, context);
    EXPECT_TRUE(created.ok()) << created.status();
    hessian = *std::move(created);
  }
  EigenpairSearch Search(const EigenpairOptions& options, const WarmStart& start = {}) {
    auto search = ExtremeEigenpair(*hessian, start, options, {}, context);
    EXPECT_TRUE(search.ok()) << search.status();
    return *std::move(search);
  }
  HessianEigenpair Find(const EigenpairOptions& options, const WarmStart& start = {}) {
    return Search(options, start).pair;
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
  EigenpairOptions options;
  options.residual_ratio = 1e-4;
  const HessianEigenpair top = quadratic.Find(options);
  EXPECT_NEAR(top.value, 2, 1e-6);
  EXPECT_TRUE(top.converged);
  EXPECT_NEAR(std::abs(top.vector[299].item<double>()), 1, 1e-6);
  EXPECT_GE(top.bound, top.value);
  EXPECT_LT(top.bound, 2.2);
  options.end = SpectrumEnd::kBottom;
  const HessianEigenpair bottom = quadratic.Find(options);
  EXPECT_NEAR(bottom.value, -3, 1e-6);
  EXPECT_LE(bottom.bound, bottom.value);
  EXPECT_GT(bottom.bound, -3.3);
}

TEST(Lanczos, ResidualIsTheTrueOne) {
  Quadratic quadratic(Spectrum(300, -1, 2));
  EigenpairOptions options;
  options.residual_ratio = 0.2;
  const HessianEigenpair top = quadratic.Find(options);
  const VectorSpace& space = quadratic.hessian->space();
  Vector rest = space.Zero();
  ASSERT_TRUE(quadratic.hessian->Apply({top.vector}, rest, quadratic.context).ok());
  space.Axpy(-top.value, {top.vector}, rest);
  EXPECT_NEAR(space.Norm(rest) / std::abs(top.value), top.residual_ratio, 1e-8);
  EXPECT_LE(top.residual_ratio, 0.2);
}

// A bulk within `bulk` of zero, 20 outliers from 0.1 to 0.8, a top of 1 at index 30 and, at 40,
// another eigenvalue.
at::Tensor WithAnother(int64_t size, double bulk, double another) {
  at::Tensor values = (at::arange(size, at::kFloat) * 12.9898).sin() * bulk;
  values.narrow(0, 0, 20).copy_(at::linspace(0.1, 0.8, 20, at::kFloat));
  values[30] = 1;
  values[40] = another;
  return values;
}

TEST(Lanczos, AWarmStartSavesProducts) {
  Quadratic before(WithAnother(2000, 0.05, 0.1));
  const WarmStart old = before.Search({}).next;
  Quadratic after(WithAnother(2000, 0.05, 0.1) * 1.1);
  const HessianEigenpair cold = after.Find({});
  const HessianEigenpair warm = after.Find({}, old);
  EXPECT_LT(warm.products, cold.products);
  EXPECT_LE(warm.products, 7);
  EXPECT_NEAR(warm.value, 1.1, 0.01);
}

TEST(Lanczos, AWarmStartDoesNotHideAnEigenvalueThatHasGrownLarger) {
  for (const double bulk : {0.0, 0.005, 0.05}) {
    Quadratic before(WithAnother(100'000, bulk, 0.1));
    const EigenpairSearch settled = before.Search({}, before.Search({}).next);
    ASSERT_NEAR(settled.pair.value, 1, 0.01);
    for (const double top : {1.2, 1.5, 3.0}) {
      Quadratic after(WithAnother(100'000, bulk, top));
      EigenpairSearch found = after.Search({}, settled.next);
      EXPECT_LE(found.pair.products, 9) << "bulk " << bulk << " top " << top;
      // One that is only a fifth larger may take another search.
      if (top < 1.3 && found.pair.value < 1.1) found = after.Search({}, found.next);
      EXPECT_NEAR(found.pair.value, top, 0.02 * top) << "bulk " << bulk;
      // At 5 % it may take more searches, each of which hands on what it has seen.
      EigenpairOptions coarse;
      coarse.residual_ratio = 0.05;
      EigenpairSearch last = after.Search(coarse, settled.next);
      int searches = 1;
      for (; last.pair.value < 0.98 * top && searches < 50; ++searches) {
        last = after.Search(coarse, last.next);
      }
      EXPECT_LE(searches, top < 1.3 ? 12 : 5) << "coarse, bulk " << bulk << " top " << top;
    }
  }
}

TEST(Lanczos, TheBoundHoldsATopThatAWarmStartHides) {
  bool hidden = false;
  for (const double bulk : {0.005, 0.05}) {
    Quadratic before(WithAnother(20'000, bulk, 0.1));
    const WarmStart settled = before.Search({}, before.Search({}).next).next;
    for (const double top : {1.05, 1.2, 1.5}) {
      Quadratic after(WithAnother(20'000, bulk, top));
      for (const double residual : {0.05, 0.02}) {
        const HessianEigenpair found = after.Find({.residual_ratio = residual}, settled);
        EXPECT_TRUE(found.converged);
        EXPECT_GE(found.bound, top) << "bulk " << bulk << " residual " << residual;
        hidden = hidden || found.value < 0.97 * top;
      }
    }
  }
  EXPECT_TRUE(hidden);
}

TEST(Lanczos, TheGradientShowsACoarseWarmStartWhatHasOvertakenIt) {
  for (const double bulk : {0.005, 0.05}) {
    Quadratic before(WithAnother(100'000, bulk, 0.9));
    EigenpairOptions coarse;
    coarse.residual_ratio = 0.05;
    const EigenpairSearch settled = before.Search(coarse, before.Search(coarse).next);
    for (const double top : {1.2, 1.5}) {
      Quadratic after(WithAnother(100'000, bulk, top));
      // A hundredth of its square is along the new top, the rest along the other outliers.
      Vector gradient = after.hessian->space().Zero();
      gradient.elements.narrow(0, 0, 20).fill_(std::sqrt(0.99 / 20));
      gradient.elements[40] = std::sqrt(0.01);
      WarmStart start = settled.next;
      start.gradient = gradient;
      const HessianEigenpair found = after.Find(coarse, start);
      EXPECT_NEAR(found.value, top, 0.02 * top) << "bulk " << bulk;
      EXPECT_LE(found.products, 8) << "bulk " << bulk << " top " << top;
    }
  }
}

TEST(Lanczos, AWarmStartOfOneParameterIsThatParameter) {
  Quadratic one(at::full({1}, 3.0, at::kDouble));
  for (const double sign : {1.0, -1.0}) {
    Vector start = one.hessian->space().Zero();
    start.elements.fill_(sign);
    EXPECT_DOUBLE_EQ(one.Find({}, {start, {}}).value, 3);
  }
}

TEST(Lanczos, LeavesAnInvariantSpaceThatDoesNotHoldTheTop) {
  // w0 w1 has the eigenvalues +1 and -1; a random start of two signs is an eigenvector.
  for (uint64_t seed = 0; seed < 8; ++seed) {
    at::Tensor w = at::full({2}, 0.5, at::kDouble);
    TensorSurface surface({{"w", w}}, [&](size_t) { return w[0] * w[1]; });
    ExecutionContext context;
    context.seeds = SeedSource(seed);
    auto hessian = HessianOperator::Create(&surface, HessianMode::kRetainedGraph, context);
    ASSERT_TRUE(hessian.ok()) << hessian.status();
    EigenpairOptions options;
    for (const auto& [end, value] :
         {std::pair{SpectrumEnd::kTop, 1.0}, {SpectrumEnd::kBottom, -1.0}}) {
      options.end = end;
      const auto search = ExtremeEigenpair(**hessian, {}, options, {}, context);
      ASSERT_TRUE(search.ok()) << search.status();
      EXPECT_DOUBLE_EQ(search->pair.value, value) << "seed " << seed;
      EXPECT_EQ(search->pair.bound, search->pair.value);
      EXPECT_EQ(search->pair.products, 2);
      EXPECT_TRUE(search->pair.converged);
    }
  }
}

TEST(Lanczos, AStartThatIsAnotherEigenvectorDoesNotHideTheTop) {
  Quadratic quadratic(Spectrum(300, -1, 2));
  EigenpairOptions options;
  options.residual_ratio = 1e-3;
  Vector start = quadratic.hessian->space().Zero();
  start.elements[150] = 1;
  EXPECT_NEAR(quadratic.Find(options, {start, {}}).value, 2, 1e-3);
}

TEST(Lanczos, GoesOnFromTheBestVectorWhenTheBasisIsFull) {
  Quadratic quadratic(Spectrum(300, -1, 2));
  EigenpairOptions options;
  options.residual_ratio = 1e-3;
  options.max_bytes = (3 + 3) * 300 * 8;  // a basis of three
  options.max_products = 200;
  const HessianEigenpair top = quadratic.Find(options);
  EXPECT_NEAR(top.value, 2, 1e-4);
  EXPECT_GT(top.products, 3);
  EXPECT_GE(top.bound, top.value);
}

TEST(Lanczos, SaysWhenItDidNotConverge) {
  Quadratic quadratic(at::linspace(0, 1, 500, at::kDouble));
  EigenpairOptions options;
  options.residual_ratio = 1e-9;
  options.max_products = 5;
  const HessianEigenpair top = quadratic.Find(options);
  EXPECT_FALSE(top.converged);
  EXPECT_EQ(top.products, 5);
  EXPECT_GT(top.residual_ratio, 1e-9);
}

TEST(Lanczos, RefusesAZeroHessianAndTakesASingleParameter) {
  Quadratic zero(at::zeros({20}, at::kDouble));
  const auto nothing = ExtremeEigenpair(*zero.hessian, {}, {}, {}, zero.context);
  EXPECT_EQ(nothing.status().code(), absl::StatusCode::kFailedPrecondition);
  Quadratic one(at::full({1}, -4.0, at::kDouble));
  EXPECT_DOUBLE_EQ(one.Find({}).value, -4);
}

TEST(Lanczos, SaysHowManyBytesItNeedsIfTheyDoNotFit) {
  Quadratic quadratic(at::full({80}, 1.0, at::kDouble));
  quadratic.context.bytes = std::make_shared<ByteBudget>(5 * 80 * 8);
  const absl::Status status =
      ExtremeEigenpair(*quadratic.hessian, {}, {}, {}, quadratic.context).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("3840 bytes for 6 vectors, the limit is 3200"));
  EXPECT_EQ(quadratic.context.bytes->used(), 0);
}

TEST(Lanczos, AStaleVectorIsRecognisedAndTheRandomPartGoesOn) {
  Quadratic quadratic(WithAnother(20'000, 0.02, 0.1));
  EigenpairOptions options;
  options.residual_ratio = 0.05;
  const EigenpairSearch cold = quadratic.Search(options);
  EXPECT_EQ(cold.pair.start, EigenvalueStart::kCold);
  EXPECT_EQ(quadratic.Find(options, cold.next).start, EigenvalueStart::kWarm);
  // An eigenvector of the bulk, far from the top one.
  Vector stale = quadratic.hessian->space().Zero();
  stale.elements[12'345] = 1;
  const HessianEigenpair found = quadratic.Find(options, {stale, {}});
  EXPECT_EQ(found.start, EigenvalueStart::kRestarted);
  EXPECT_TRUE(found.converged);
  EXPECT_NEAR(found.value, 1, 0.01);
  EXPECT_LE(found.products, cold.pair.products + 2);
  // Unusable vectors are ignored.
  stale.elements.fill_(NAN);
  EXPECT_EQ(quadratic.Find(options, {stale, stale}).start, EigenvalueStart::kCold);
  EXPECT_EQ(quadratic.Find(options, {{at::zeros({7})}, {}}).start, EigenvalueStart::kCold);
}

TEST(Lanczos, AMisleadingSecondaryVectorDoesNotHideTheTopFromAColdStart) {
  // As a gradient along another eigenvector would be.
  for (const double top : {1.5, 3.0}) {
    Quadratic quadratic(WithAnother(100'000, 0.005, top));
    Vector secondary = quadratic.hessian->space().Zero();
    secondary.elements[30] = 1;
    const HessianEigenpair found = quadratic.Find({}, {{}, secondary});
    EXPECT_EQ(found.start, EigenvalueStart::kCold);
    EXPECT_NEAR(found.value, top, 0.02 * top);
  }
}

TEST(Lanczos, AGradientAloneDoesNotMakeACoarseSearchSure) {
  // An eigenvector of the second eigenvalue.
  for (const double top : {1.05, 3.0}) {
    Quadratic quadratic(WithAnother(2000, 0.05, top));
    Vector gradient = quadratic.hessian->space().Zero();
    gradient.elements[30] = 1;
    EigenpairOptions coarse;
    coarse.residual_ratio = 0.05;
    const HessianEigenpair found = quadratic.Find(coarse, {{}, {}, gradient});
    EXPECT_EQ(found.start, EigenvalueStart::kCold);
    EXPECT_GE(found.bound, top);
    EXPECT_GE(found.bound, found.value * (1 + found.residual_ratio));
  }
}

// A quadratic's Hessian, whose rough products are another method's: `off` changes them.
class Roughened final : public SymmetricOperator {
 public:
  using Off = std::function<void(const Vector& v, Vector& av)>;
  explicit Roughened(SymmetricOperator* hessian, Off off = {})
      : hessian_(hessian), off_(std::move(off)) {}
  const VectorSpace& space() const override { return hessian_->space(); }
  absl::Status Apply(const Vector& v, Vector& av, const ExecutionContext& context) override {
    ++exact;
    return hessian_->Apply(v, av, context);
  }
  absl::Status ApplyRoughly(const Vector& v, Vector& av, const ExecutionContext& context) override {
    ++rough;
    const absl::Status status = hessian_->Apply(v, av, context);
    if (off_) off_(v, av);
    return space().IsFinite(av) ? status : absl::DataLossError("not finite");
  }
  bool rough_needs_check() const override { return off_ != nullptr; }
  int exact = 0;
  int rough = 0;

 private:
  SymmetricOperator* hessian_;
  const Off off_;
};

// Adds another random vector of this share of the product to each.
Roughened::Off Noise(const VectorSpace& space, double share) {
  return [&space, share, drawn = uint64_t{0}](const Vector&, Vector& av) mutable {
    Vector noise = space.Zero();
    space.FillRademacher(SeedSource(3).Seed("noise", drawn++), noise);
    space.Axpy(share * space.Norm(av) / space.Norm(noise), noise, av);
  };
}

// Adds `value` along one of a diagonal matrix's eigenvectors.
Roughened::Off Raise(int64_t index, double value) {
  return [=](const Vector& v, Vector& av) { av.elements[index] += value * v.elements[index]; };
}

TEST(Lanczos, RoughProductsServeIfTheResidualDoesNotSeeTheirError) {
  Quadratic quadratic(Spectrum(300, -1, 2));
  Roughened counting(quadratic.hessian.get());
  EigenpairOptions options;
  options.residual_ratio = 0.02;
  ASSERT_TRUE(ExtremeEigenpair(counting, {}, options, {}, quadratic.context).ok());
  EXPECT_EQ(counting.exact, 0);
  EXPECT_GT(counting.rough, 0);
  counting.rough = 0;
  options.residual_ratio = 0.01;
  ASSERT_TRUE(ExtremeEigenpair(counting, {}, options, {}, quadratic.context).ok());
  EXPECT_GT(counting.exact, 0);
  EXPECT_EQ(counting.rough, 0);
}

TEST(Lanczos, AnExactProductConfirmsWhatRoughOnesFind) {
  at::Tensor negative = WithAnother(2000, 0.05, 0.1);
  negative[50] = -3;
  const struct {
    const char* name;
    at::Tensor values;
  } cases[] = {{"alone", WithAnother(2000, 0.05, 0.1)},
               {"a close pair", WithAnother(2000, 0.05, 0.998)},
               {"a double eigenvalue", WithAnother(2000, 0.05, 1)},
               {"a larger negative one", negative}};
  for (const auto& [name, values] : cases) {
    SCOPED_TRACE(name);
    Quadratic quadratic(values);
    const VectorSpace& space = quadratic.hessian->space();
    // An eigenvector of the bulk: only the random part of the start sees the top.
    Vector other = space.Zero();
    other.elements[1500] = 1;
    for (const WarmStart& start : {WarmStart{}, WarmStart{other, {}}}) {
      for (const double residual : {0.05, 0.02}) {
        Roughened rough(quadratic.hessian.get(), Noise(space, 0.005));
        const EigenpairOptions options = {.residual_ratio = residual};
        const auto search = ExtremeEigenpair(rough, start, options, {}, quadratic.context);
        ASSERT_TRUE(search.ok()) << search.status();
        const HessianEigenpair& top = search->pair;
        EXPECT_TRUE(top.converged);
        EXPECT_NEAR(top.value, 1, 0.005);
        EXPECT_LE(top.value, 1 + 1e-6);
        EXPECT_GE(top.bound, 1);
        EXPECT_GE(top.bound, top.value * (1 + top.residual_ratio));
        EXPECT_LE(rough.exact, 2);
        EXPECT_EQ(top.products, rough.exact + rough.rough);
        Vector rest = space.Zero();
        ASSERT_TRUE(quadratic.hessian->Apply({top.vector}, rest, quadratic.context).ok());
        EXPECT_NEAR(space.Dot({top.vector}, rest), top.value, 1e-6);
        space.Axpy(-top.value, {top.vector}, rest);
        EXPECT_NEAR(space.Norm(rest) / top.value, top.residual_ratio, 1e-6);
        EXPECT_LE(top.residual_ratio, residual);
      }
    }
  }
}

TEST(Lanczos, RoughProductsThatAreWrongGiveWayToExactOnes) {
  Quadratic quadratic(WithAnother(2000, 0.05, 0.1));
  const VectorSpace& space = quadratic.hessian->space();
  const EigenpairOptions options = {.residual_ratio = 0.05};
  const HessianEigenpair expected = quadratic.Find(options);
  const struct {
    const char* name;
    Roughened::Off off;
  } cases[] = {
      {"a top that is none", Raise(40, 1.4)},
      {"a top that is too large", Raise(30, 0.1)},
      {"not symmetric", [](const Vector& v, Vector& av) { av.elements[5] += v.elements[30]; }},
      {"noise", Noise(space, 0.3)},
      {"zero", [](const Vector&, Vector& av) { av.elements.zero_(); }}};
  for (const auto& [name, off] : cases) {
    SCOPED_TRACE(name);
    Roughened rough(quadratic.hessian.get(), off);
    const auto search = ExtremeEigenpair(rough, {}, options, {}, quadratic.context);
    ASSERT_TRUE(search.ok()) << search.status();
    EXPECT_EQ(search->pair.value, expected.value);
    EXPECT_EQ(search->pair.bound, expected.bound);
    EXPECT_TRUE(search->pair.vector.equal(expected.vector));
    EXPECT_GE(rough.exact, expected.products);
    EXPECT_LE(rough.exact, expected.products + 1);
    EXPECT_EQ(search->pair.products, rough.exact + rough.rough);
  }
}

TEST(Lanczos, DifferencesAcrossAKinkGiveWayToTheHessian) {
  // |r| has the Hessian 0, and a difference from one side of 0 to the other is as large as any.
  const at::Tensor values = Spectrum(300, -1, 2);
  at::Tensor x = at::full({300}, 0.5, at::kDouble);
  at::Tensor r = at::zeros({1}, at::kDouble);
  TensorSurface surface({{"x", x}, {"r", r}},
                        [&](size_t) { return 0.5 * (x * x * values).sum() + r.abs().sum(); });
  ExecutionContext context;
  const auto hessian = HessianOperator::Create(&surface, HessianMode::kRetainedGraph, context,
                                               /*rough_differences=*/true);
  ASSERT_TRUE(hessian.ok()) << hessian.status();
  const auto search = ExtremeEigenpair(**hessian, {}, {.residual_ratio = 0.02}, {}, context);
  ASSERT_TRUE(search.ok()) << search.status();
  EXPECT_TRUE(search->pair.converged);
  EXPECT_NEAR(search->pair.value, 2, 0.01);
  EXPECT_LT(search->pair.bound, 2.5);
}

TEST(Lanczos, RoughProductsStopAtTheLimitAndAreConfirmedThen) {
  Quadratic quadratic(at::linspace(0, 1, 500, at::kDouble));
  Roughened rough(quadratic.hessian.get(), Noise(quadratic.hessian->space(), 1e-3));
  const EigenpairOptions options = {.residual_ratio = 0.02, .max_products = 5};
  const auto search = ExtremeEigenpair(rough, {}, options, {}, quadratic.context);
  ASSERT_TRUE(search.ok()) << search.status();
  EXPECT_FALSE(search->pair.converged);
  EXPECT_EQ(search->pair.products, 5);
  EXPECT_EQ(rough.exact, 1);
}

TEST(Lanczos, RoughProductsServeBesideEigenvectorsFoundBefore) {
  Quadratic quadratic(WithAnother(2000, 0.05, 0.9));
  const EigenpairSearch first = quadratic.Search({});
  Roughened rough(quadratic.hessian.get(), Noise(quadratic.hessian->space(), 0.003));
  const auto second = ExtremeEigenpair(rough, {}, {}, {&first.next.vector, 1}, quadratic.context);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NEAR(second->pair.value, 0.9, 0.01);
  EXPECT_LE(rough.exact, 2);
}

TEST(Lanczos, KrylovSpaceIsTheHessianThere) {
  Quadratic quadratic(Spectrum(60, -1, 2));
  EigenpairOptions options;
  options.max_products = 6;
  options.residual_ratio = 1e-12;
  const KrylovSpace krylov = quadratic.Search(options).krylov;
  const size_t size = krylov.basis.size();
  ASSERT_EQ(size, 7u);
  const VectorSpace& space = quadratic.hessian->space();
  for (size_t i = 0; i + 1 < size; ++i) {
    Vector product = space.Zero();
    ASSERT_TRUE(quadratic.hessian->Apply(krylov.basis[i], product, quadratic.context).ok());
    for (size_t j = 0; j < size; ++j) {
      EXPECT_NEAR(space.Dot(krylov.basis[j], product), krylov.matrix[i * size + j], 1e-9);
      EXPECT_NEAR(space.Dot(krylov.basis[i], krylov.basis[j]), i == j ? 1 : 0, 1e-12);
    }
  }
  EXPECT_EQ(krylov.matrix.back(), 0);
}

TEST(Lanczos, EndsWhenCancelled) {
  Quadratic quadratic(Spectrum(300, -1, 2));
  quadratic.context.cancel.Cancel();
  const auto pair = ExtremeEigenpair(*quadratic.hessian, {}, {}, {}, quadratic.context);
  EXPECT_TRUE(absl::IsCancelled(pair.status()));
}

}  // namespace lanczos_test
}  // namespace ptqwatch::internal
