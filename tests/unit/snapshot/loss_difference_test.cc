#include "snapshot/loss_difference.h"

#include <gtest/gtest.h>

#include <limits>

#include "ATen/ops/tensor.h"

namespace ptqwatch::internal {
namespace loss_difference_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double Difference(std::vector<double> a, std::vector<double> b) {
  return LossDifference(at::tensor(a), at::tensor(b));
}

TEST(LossDifference, IsRelativeForLossesAboveOne) {
  EXPECT_EQ(Difference({0.5, 4}, {0.5, 4}), 0);
  EXPECT_EQ(Difference({0.5, 4}, {0.5, 5}), 0.25);
  EXPECT_EQ(Difference({0.5, 4}, {0.75, 4}), 0.25);
}

TEST(LossDifference, IsInfiniteForOtherTensors) {
  EXPECT_EQ(Difference({1, 2}, {1}), kInfinity);
  EXPECT_EQ(LossDifference(at::tensor({1.0}), at::tensor({1.0f})), kInfinity);
  EXPECT_EQ(LossDifference(at::tensor({1.0}), at::Tensor()), kInfinity);
  EXPECT_EQ(LossDifference(at::Tensor(), at::Tensor()), 0);
}

TEST(LossDifference, TakesNaNInTheSamePlaceForEqual) {
  EXPECT_EQ(Difference({kNaN, 4}, {kNaN, 5}), 0.25);
  EXPECT_EQ(Difference({kNaN, 4}, {3, 4}), kInfinity);
  EXPECT_EQ(Difference({kInfinity, 4}, {kInfinity, 5}), 0.25);
  EXPECT_GT(Difference({kInfinity, 4}, {1, 4}), 1);
}

TEST(LossTolerance, AllowsAtomicAdditionsOnAGpuAlone) {
  EXPECT_EQ(LossTolerance(at::Device(at::kCPU)), 0);
  EXPECT_EQ(LossTolerance(at::Device(at::kCUDA, 0)), 1e-6);
}

}  // namespace loss_difference_test
}  // namespace ptqwatch::internal
