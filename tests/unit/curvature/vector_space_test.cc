#include "curvature/vector_space.h"

#include <gmock/gmock.h>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "ATen/record_function.h"
#include "cuda/device_vectors.h"
#include "curvature/orthogonalize.h"
#include "support/host_device.h"

namespace ptqwatch::internal {
namespace vector_space_test {

using ::testing::ElementsAre;

VectorSpace TwoParts(at::ScalarType dtype = at::kFloat) {
  return VectorSpace({{"a", at::zeros({2, 3})}, {"b", at::zeros({70})}}, dtype, at::kCPU);
}

TEST(VectorSpace, ViewsSharePartsOfTheVector) {
  const VectorSpace space = TwoParts();
  Vector x = space.Zero();
  space.View(x, 0).fill_(2);
  space.View(x, 1).fill_(3);
  EXPECT_EQ(space.dimension(), 76);
  EXPECT_THAT(space.DotByPiece(x, x), ElementsAre(6 * 4, 70 * 9));
  EXPECT_EQ(space.View(x, 0).sizes().vec(), (std::vector<int64_t>{2, 3}));
}

TEST(VectorSpace, DotAccumulatesInFloat64) {
  const VectorSpace space({{"a", at::zeros({1 << 20})}}, at::kFloat, at::kCPU);
  Vector ones = space.Zero();
  ones.elements.fill_(1);
  Vector x = space.Zero();
  x.elements.fill_(0.1f);
  // A float32 sum of a million tenths is off in its fourth digit.
  EXPECT_NEAR(space.Dot(ones, x), 0.1f * double{1 << 20}, 1e-6);
}

TEST(VectorSpace, AxpyScaleAndCopyLeaveTheOtherVectorAlone) {
  const VectorSpace space = TwoParts(at::kDouble);
  Vector x = space.Zero();
  x.elements.copy_(at::arange(76));
  Vector y = space.Copy(x);
  space.Axpy(-0.5, x, y);
  space.Scale(2, y);
  EXPECT_TRUE(at::equal(y.elements, x.elements));
  EXPECT_NEAR(space.Norm(x), std::sqrt(space.Dot(x, x)), 1e-12);
}

TEST(VectorSpace, SignsAreAFunctionOfTheSeedAndTheIndexAlone) {
  const VectorSpace space = TwoParts();
  const VectorSpace wide = TwoParts(at::kDouble);
  Vector x = space.Zero();
  Vector again = space.Zero();
  Vector other = space.Zero();
  Vector doubles = wide.Zero();
  space.FillRademacher(7, x);
  space.FillRademacher(7, again);
  space.FillRademacher(8, other);
  wide.FillRademacher(7, doubles);
  EXPECT_TRUE(at::equal(x.elements, again.elements));
  EXPECT_FALSE(at::equal(x.elements, other.elements));
  EXPECT_TRUE(at::equal(x.elements.to(at::kDouble), doubles.elements));
  EXPECT_TRUE(at::equal(x.elements.abs(), at::full({76}, 1.0f)));
}

TEST(VectorSpace, SignsAreBalancedAndSeedsAreIndependent) {
  const VectorSpace space({{"a", at::zeros({1 << 16})}}, at::kFloat, at::kCPU);
  Vector x = space.Zero();
  Vector y = space.Zero();
  Vector ones = space.Zero();
  ones.elements.fill_(1);
  space.FillRademacher(1, x);
  space.FillRademacher(2, y);
  // Standard deviation 256.
  EXPECT_LT(std::abs(space.Dot(ones, x)), 4 * 256);
  EXPECT_LT(std::abs(space.Dot(x, y)), 4 * 256);
}

// A space of CPU tensors whose kernels are plain loops on them.
struct KernelSpace {
  explicit KernelSpace(at::ScalarType dtype) : space(Space(dtype)) {
    auto kernels = DeviceVectors::Create(device, std::vector<int64_t>{100, 200, 70000});
    space.UseKernels(std::make_shared<DeviceVectors>(*std::move(kernels)));
  }
  static VectorSpace Space(at::ScalarType dtype) {
    VectorSpace space({{"a", at::zeros({300})}, {"b", at::zeros({70000})}}, dtype, at::kCPU);
    space.Split(0, {{"a.0", 100}, {"a.1", 200}});
    return space;
  }
  testing::HostDevice device{1 << 20};
  VectorSpace space;
};

TEST(VectorSpace, KernelsGiveWhatTheHostGives) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const KernelSpace kernels(dtype);
    const VectorSpace host = KernelSpace::Space(dtype);
    std::vector<Vector> basis;
    for (uint64_t seed = 0; seed < 3; ++seed) {
      Vector x = host.Zero();
      Vector y = kernels.space.Zero();
      host.FillRademacher(seed, x);
      kernels.space.FillRademacher(seed, y);
      EXPECT_TRUE(at::equal(x.elements, y.elements));
      basis.push_back(x);
    }
    // Sums of signs are exact.
    EXPECT_EQ(kernels.space.DotByPiece(basis[0], basis[1]), host.DotByPiece(basis[0], basis[1]));
    EXPECT_EQ(kernels.space.Dots(basis, basis[2]), host.Dots(basis, basis[2]));
    EXPECT_EQ(kernels.space.Norm(basis[0]), host.Norm(basis[0]));
  }
}

TEST(VectorSpace, KernelsOrthogonalizeWithOneReadForManyVectors) {
  KernelSpace kernels(at::kFloat);
  const VectorSpace host = KernelSpace::Space(at::kFloat);
  std::vector<Vector> basis;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Vector x = host.Zero();
    host.FillRademacher(seed, x);
    Orthogonalize(host, basis, x);
    host.Scale(1 / host.Norm(x), x);
    basis.push_back(std::move(x));
  }
  Vector x = host.Zero();
  host.FillRademacher(99, x);
  Vector y = host.Copy(x);
  const int64_t reads = kernels.device.reads();
  const std::vector<double> removed = Orthogonalize(kernels.space, basis, y);
  EXPECT_EQ(kernels.device.reads() - reads, 2);  // one a pass
  const std::vector<double> expected = Orthogonalize(host, basis, x);
  for (size_t i = 0; i < basis.size(); ++i) {
    EXPECT_NEAR(removed[i], expected[i], 1e-4);
    EXPECT_NEAR(host.Dot(basis[i], y), 0, 1e-6);
  }
  EXPECT_LT(host.Distance(x, y), 1e-5 * host.Norm(x));
}

TEST(VectorSpace, KernelsThrowIfTheDeviceFails) {
  KernelSpace kernels(at::kFloat);
  Vector x = kernels.space.Zero();
  kernels.device.FailAfter(0, absl::InternalError("broken"));
  EXPECT_THROW(kernels.space.Dot(x, x), std::runtime_error);
  EXPECT_THROW(kernels.space.FillRademacher(1, x), std::runtime_error);
}

// Tensors without data stand for those on a GPU, where every operator is a launch.
TEST(VectorSpace, RotatesLargePiecesOnADevice) {
  static int operators = 0;
  const VectorSpace space({{"a", at::empty({100'000'000}, at::device(at::kMeta))}}, at::kFloat,
                          at::kMeta);
  std::vector<Vector> basis;
  for (int i = 0; i < 6; ++i) basis.push_back(space.Zero());
  const at::CallbackHandle handle = at::addThreadLocalCallback(at::RecordFunctionCallback(
      [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
        ++operators;
        return nullptr;
      }));
  space.Rotate({{1, 2, 3, 4, 5, 6}, {1, 0, 0, 0, 0, 1}}, basis);
  at::removeCallback(handle);
  EXPECT_EQ(basis.size(), 2u);
  EXPECT_LT(operators, 1000);
}

TEST(VectorSpace, KnowsWhatIsNotFinite) {
  const VectorSpace space = TwoParts();
  Vector x = space.Zero();
  EXPECT_TRUE(space.IsFinite(x));
  x.elements[75] = NAN;
  EXPECT_FALSE(space.IsFinite(x));
}

}  // namespace vector_space_test
}  // namespace ptqwatch::internal
