#include "curvature/hessian_operator.h"

#include <gmock/gmock.h>

#include "ATen/TensorOperators.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/full.h"
#include "ATen/ops/linspace.h"
#include "ATen/ops/tanh.h"
#include "curvature/storage_watcher.h"
#include "support/tensor_surface.h"

namespace ptqwatch::internal {
namespace hessian_operator_test {

using ::testing::HasSubstr;
using testing::TensorSurface;

constexpr HessianMode kRetained = HessianMode::kRetainedGraph;
constexpr HessianMode kRecomputed = HessianMode::kRecomputedGraph;
constexpr HessianMode kDifference = HessianMode::kFiniteDifference;

// sum over i of c_i (a_i^2 b_i + tanh(b_i)) in two batches that each add half of it.
struct Smooth {
  explicit Smooth(at::ScalarType dtype = at::kDouble)
      : a(at::linspace(-1, 1, 6, dtype)),
        b(at::linspace(0.2, 0.9, 6, dtype)),
        c(at::linspace(1, 2, 6, dtype)),
        surface(
            {{"a", a}, {"b", b}},
            [this](size_t batch) {
              const at::Tensor terms = c * (a * a * b + b.tanh());
              return terms.narrow(0, static_cast<int64_t>(batch) * 3, 3).sum().to(at::kDouble);
            },
            2) {}
  at::Tensor Times(const Vector& v) const {
    at::NoGradGuard no_grad;
    const at::Tensor va = v.elements.narrow(0, 0, 6);
    const at::Tensor vb = v.elements.narrow(0, 6, 6);
    const at::Tensor t = b.tanh();
    return at::cat({c * (2 * b * va + 2 * a * vb), c * (2 * a * va - 2 * t * (1 - t * t) * vb)});
  }
  Vector Direction() const {
    Vector v = surface.space().Zero();
    v.elements.copy_(at::linspace(-1, 2, 12, v.elements.scalar_type()));
    return v;
  }
  ExecutionContext context;
  at::Tensor a, b, c;
  TensorSurface surface;
};

double Gap(const at::Tensor& x, const at::Tensor& y) {
  return ((x - y).norm() / y.norm()).item<double>();
}

std::unique_ptr<HessianOperator> Make(LossSurface* surface, HessianMode mode,
                                      const ExecutionContext& context) {
  auto created = HessianOperator::Create(surface, mode, context);
  EXPECT_TRUE(created.ok()) << created.status();
  return created.ok() ? *std::move(created) : nullptr;
}

TEST(HessianOperator, AllModesAgreeWithTheFormulaOverAllBatches) {
  Smooth smooth;
  const Vector v = smooth.Direction();
  for (HessianMode mode : {kRetained, kRecomputed, kDifference}) {
    const auto hessian = Make(&smooth.surface, mode, smooth.context);
    Vector hv = smooth.surface.space().Zero();
    ASSERT_TRUE(hessian->Apply(v, hv, smooth.context).ok());
    EXPECT_LT(Gap(hv.elements, smooth.Times(v)), mode == kDifference ? 1e-5 : 1e-14);
    const at::Tensor ga = (smooth.c * 2 * smooth.a * smooth.b).detach();
    EXPECT_LT(Gap(hessian->gradient().elements.narrow(0, 0, 6), ga), 1e-14);
    EXPECT_EQ(hessian->products(), 1);
  }
}

TEST(HessianOperator, ARecomputedGraphGivesTheBitsOfARetainedOneAndIsNotKept) {
  Smooth smooth(at::kFloat);
  const Vector v = smooth.Direction();
  std::vector<Vector> products;
  std::vector<int64_t> held;
  for (HessianMode mode : {kRetained, kRecomputed}) {
    StorageWatcher watcher;
    auto hessian = Make(&smooth.surface, mode, smooth.context);
    Vector& hv = products.emplace_back(smooth.surface.space().Zero());
    ASSERT_TRUE(hessian->Apply(v, hv, smooth.context).ok());
    watcher.Stop();
    const int64_t with = watcher.LiveBytes();
    hessian.reset();
    held.push_back(with - watcher.LiveBytes());
  }
  EXPECT_TRUE(products[0].elements.equal(products[1].elements));
  EXPECT_EQ(held[1], smooth.surface.space().bytes());  // its gradient
  EXPECT_GT(held[0], 2 * held[1]);
}

TEST(HessianOperator, AMaskedTokenNeedsAFiniteDerivative) {
  at::Tensor w = at::linspace(0, 1, 4, at::kDouble);
  const at::Tensor mask = at::linspace(0, 1, 4, at::kDouble).ceil();
  TensorSurface surface({{"w", w}}, [&](size_t) { return (w.sqrt() * mask).sum(); });
  ExecutionContext context;
  for (HessianMode mode : {kRetained, kRecomputed, kDifference}) {
    const auto status = HessianOperator::Create(&surface, mode, context).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("derivative of a masked token must be finite"));
  }
}

TEST(HessianOperator, DifferencesInFloat32AreGoodToAThousandthAndSaySo) {
  Smooth smooth(at::kFloat);
  const Vector v = smooth.Direction();
  const auto hessian = Make(&smooth.surface, kDifference, smooth.context);
  Vector hv = smooth.surface.space().Zero();
  ASSERT_TRUE(hessian->Apply(v, hv, smooth.context).ok());
  EXPECT_LT(Gap(hv.elements, smooth.Times(v)), 1e-3);
  const auto check = hessian->StepCheck(v, hv, smooth.context);
  ASSERT_TRUE(check.ok());
  EXPECT_GT(*check, 0);
  EXPECT_LT(*check, 1e-3);
}

TEST(HessianOperator, RoughDifferencesAreGoodToAHundredthWhereTheGradientLiesElsewhere) {
  // The step is one by which the gradient of b changes little, and that of a by a tenth.
  at::Tensor a = at::zeros({1}, at::kDouble);
  at::Tensor b = at::full({1}, 100.0, at::kDouble);
  TensorSurface surface({{"a", a}, {"b", b}}, [&](size_t) { return (a.exp() + 15 * b).sum(); });
  ExecutionContext context;
  const auto rough = Make(&surface, kDifference, context);
  Vector v = surface.space().Zero();
  v.elements[0] = 1;
  Vector hv = surface.space().Zero();
  ASSERT_TRUE(rough->ApplyRoughly(v, hv, context).ok());
  EXPECT_NEAR(hv.elements[0].item<double>(), 1, 1e-2);
}

TEST(HessianOperator, RoughDifferencesCostAGradientAndAreGoodToAHundredth) {
  at::Tensor w = at::linspace(0.1, 1, 50);
  int gradients = 0;
  TensorSurface surface({{"w", w}}, [&](size_t) {
    ++gradients;
    return (w.tanh() * w).sum().to(at::kDouble);
  });
  ExecutionContext context;
  const auto exact = Make(&surface, kRetained, context);
  const auto rough = Make(&surface, kDifference, context);
  Vector v = surface.space().Zero();
  v.elements.copy_(at::linspace(-1, 2, 50));
  Vector expected = surface.space().Zero();
  Vector hv = surface.space().Zero();
  ASSERT_TRUE(exact->ApplyRoughly(v, expected, context).ok());
  ASSERT_TRUE(rough->ApplyRoughly(v, hv, context).ok());  // finds its step
  EXPECT_LT(Gap(hv.elements, expected.elements), 1e-2);
  gradients = 0;
  ASSERT_TRUE(rough->ApplyRoughly(v, hv, context).ok());
  EXPECT_EQ(gradients, 1);
  ASSERT_TRUE(rough->Apply(v, hv, context).ok());
  EXPECT_EQ(gradients, 3);
  EXPECT_LT(Gap(hv.elements, expected.elements), 1e-3);
  EXPECT_EQ(rough->products(), 3);
  EXPECT_TRUE(w.detach().equal(at::linspace(0.1, 1, 50)));
}

TEST(HessianOperator, AGraphSurvivesRoughDifferencesAndNoOtherWrite) {
  for (HessianMode mode : {kRetained, kRecomputed}) {
    Smooth smooth(at::kFloat);
    const Vector v = smooth.Direction();
    const VectorSpace& space = smooth.surface.space();
    const auto exact = Make(&smooth.surface, mode, smooth.context);
    EXPECT_FALSE(exact->rough_needs_check());
    Vector expected = space.Zero();
    ASSERT_TRUE(exact->Apply(v, expected, smooth.context).ok());
    auto created = HessianOperator::Create(&smooth.surface, mode, smooth.context,
                                           /*rough_differences=*/true);
    ASSERT_TRUE(created.ok()) << created.status();
    HessianOperator& both = **created;
    EXPECT_TRUE(both.rough_needs_check());
    EXPECT_TRUE(both.exact());
    Vector rough = space.Zero();
    ASSERT_TRUE(both.ApplyRoughly(v, rough, smooth.context).ok());
    EXPECT_FALSE(rough.elements.equal(expected.elements));
    EXPECT_LT(Gap(rough.elements, expected.elements), 1e-2);
    Vector hv = space.Zero();
    ASSERT_TRUE(both.Apply(v, hv, smooth.context).ok());
    EXPECT_TRUE(hv.elements.equal(expected.elements));
    ASSERT_TRUE(smooth.surface.MoveTo(&v, 0.1).ok());
    EXPECT_TRUE(absl::IsFailedPrecondition(both.ApplyRoughly(v, rough, smooth.context)));
    EXPECT_TRUE(absl::IsFailedPrecondition(both.Apply(v, hv, smooth.context)));
  }
}

TEST(HessianOperator, ProductsAreSplitByBatch) {
  Smooth smooth;
  const Vector v = smooth.Direction();
  const at::Tensor terms = v.elements * smooth.Times(v);
  for (HessianMode mode : {kRetained, kRecomputed, kDifference}) {
    const auto hessian = Make(&smooth.surface, mode, smooth.context);
    Vector whole = smooth.surface.space().Zero();
    Vector hv = smooth.surface.space().Zero();
    std::vector<double> along = {7};
    ASSERT_TRUE(hessian->Apply(v, whole, smooth.context).ok());
    ASSERT_TRUE(hessian->ApplyByShare(v, hv, along, smooth.context).ok());
    EXPECT_TRUE(hv.elements.equal(whole.elements));
    ASSERT_EQ(along.size(), 2u);
    for (int64_t b = 0; b < 2; ++b) {
      // The first batch has the first three elements of a and b.
      const double expected =
          (terms.narrow(0, 3 * b, 3).sum() + terms.narrow(0, 6 + 3 * b, 3).sum()).item<double>();
      EXPECT_NEAR(along[static_cast<size_t>(b)], expected, 1e-4 * std::abs(expected));
    }
    EXPECT_EQ(hessian->shares(), std::vector<double>({0.5, 0.5}));
  }
}

TEST(HessianOperator, DifferencesLeaveTheWeightsAsTheyWere) {
  Smooth smooth(at::kFloat);
  const at::Tensor before = smooth.a.detach().clone();
  const auto hessian = Make(&smooth.surface, kDifference, smooth.context);
  Vector hv = smooth.surface.space().Zero();
  ASSERT_TRUE(hessian->Apply(smooth.Direction(), hv, smooth.context).ok());
  EXPECT_TRUE(smooth.a.detach().equal(before));
}

TEST(HessianOperator, RefusesAProductAfterTheWeightsWereWrittenTo) {
  for (HessianMode mode : {kRetained, kRecomputed, kDifference}) {
    Smooth smooth;
    const auto hessian = Make(&smooth.surface, mode, smooth.context);
    Vector hv = smooth.surface.space().Zero();
    const Vector v = smooth.Direction();
    ASSERT_TRUE(hessian->Apply(v, hv, smooth.context).ok());
    ASSERT_TRUE(smooth.surface.MoveTo(&v, 0.5).ok());
    const absl::Status status = hessian->Apply(v, hv, smooth.context);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("written to"));
  }
}

TEST(HessianOperator, ATiedParameterIsDifferentiatedThroughAllItsTensors) {
  // One part behind two leaves: loss = w' u with w = u gives H = 2 I.
  class Tied final : public LossSurface {
   public:
    Tied() : space_({{"w", w_}}, at::kDouble, at::kCPU) {
      leaves_ = {{w_.requires_grad_(true), 0}, {u_.requires_grad_(true), 0}};
    }
    const VectorSpace& space() const override { return space_; }
    const std::vector<Leaf>& leaves() const override { return leaves_; }
    size_t batches() const override { return 1; }
    absl::StatusOr<at::Tensor> Loss(size_t, bool with_graph) override {
      at::AutoGradMode mode(with_graph);
      return w_.dot(u_);
    }
    absl::Status MoveTo(const Vector*, double) override { return absl::OkStatus(); }
    uint64_t generation() const override { return 0; }
    double WeightNorm() const override { return 1; }

   private:
    at::Tensor w_ = at::full({3}, 0.5, at::kDouble);
    at::Tensor u_ = at::full({3}, 0.5, at::kDouble);
    VectorSpace space_;
    std::vector<Leaf> leaves_;
  } tied;
  ExecutionContext context;
  const auto hessian = Make(&tied, kRetained, context);
  Vector v = tied.space().Zero();
  v.elements.fill_(3);
  Vector hv = tied.space().Zero();
  ASSERT_TRUE(hessian->Apply(v, hv, context).ok());
  EXPECT_TRUE(hv.elements.equal(at::full({3}, 6.0, at::kDouble)));
}

TEST(HessianOperator, ALinearLossHasAZeroHessian) {
  at::Tensor w = at::full({4}, 1.0, at::kDouble);
  TensorSurface surface({{"w", w}}, [&](size_t) { return (3 * w).sum(); });
  ExecutionContext context;
  for (HessianMode mode : {kRetained, kDifference}) {
    const auto hessian = Make(&surface, mode, context);
    Vector v = surface.space().Zero();
    v.elements.fill_(1);
    Vector hv = surface.space().Zero();
    hv.elements.fill_(7);
    ASSERT_TRUE(hessian->Apply(v, hv, context).ok());
    EXPECT_NEAR(surface.space().Norm(hv), 0, 1e-9);
  }
}

TEST(HessianOperator, ANonFiniteLossIsDataLoss) {
  at::Tensor w = at::full({4}, -1.0);
  TensorSurface surface({{"w", w}}, [&](size_t) { return w.log().sum().to(at::kDouble); });
  ExecutionContext context;
  for (HessianMode mode : {kRetained, kDifference}) {
    EXPECT_TRUE(absl::IsDataLoss(HessianOperator::Create(&surface, mode, context).status()));
  }
}

TEST(HessianOperator, ALossThatThrowsOrHasNoGraphIsAStatus) {
  at::Tensor w = at::full({4}, 1.0);
  ExecutionContext context;
  TensorSurface cut({{"w", w}}, [&](size_t) { return w.detach().sum().to(at::kDouble); });
  const auto status = HessianOperator::Create(&cut, kRetained, context).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot be differentiated"));
}

}  // namespace hessian_operator_test
}  // namespace ptqwatch::internal
