#include "models/norms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/TensorOperators.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/randn.h"

namespace ptqwatch::internal {
namespace norms_test {

constexpr double kEps = 0.01;

at::Tensor Random(std::vector<int64_t> shape, uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed));
}

// The definition of a row's norm, in double.
std::vector<double> Expected(NormKind kind, const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias) {
  const at::Tensor row = x.to(at::kDouble);
  const auto size = static_cast<double>(row.numel());
  const bool centred = kind == NormKind::kLayerNorm || kind == NormKind::kPlainLayerNorm;
  const double mean = centred ? row.sum().item<double>() / size : 0;
  const double square = (row - mean).pow(2).sum().item<double>() / size;
  std::vector<double> result;
  for (int64_t i = 0; i < row.numel(); ++i) {
    double value = (row[i].item<double>() - mean) / std::sqrt(square + kEps);
    if (kind == NormKind::kRmsPlusOne) value *= 1 + weight[i].item<double>();
    if (kind == NormKind::kRms || kind == NormKind::kLayerNorm) value *= weight[i].item<double>();
    if (kind == NormKind::kLayerNorm) value += bias[i].item<double>();
    result.push_back(value);
  }
  return result;
}

TEST(NormsTest, AreTheirDefinitions) {
  const at::Tensor x = Random({3, 7}, 1) + 0.5, weight = Random({7}, 2), bias = Random({7}, 3);
  for (const NormKind kind :
       {NormKind::kLayerNorm, NormKind::kPlainLayerNorm, NormKind::kRms, NormKind::kRmsPlusOne}) {
    const bool plain = kind == NormKind::kPlainLayerNorm;
    const at::Tensor result = Normalize(kind, x, plain ? at::Tensor() : weight,
                                        kind == NormKind::kLayerNorm ? bias : at::Tensor(), kEps);
    for (int64_t row = 0; row < 3; ++row) {
      const std::vector<double> expected = Expected(kind, x[row], weight, bias);
      for (int64_t i = 0; i < 7; ++i) {
        EXPECT_NEAR(result[row][i].item<double>(), expected[static_cast<size_t>(i)], 1e-5);
      }
    }
  }
}

}  // namespace norms_test
}  // namespace ptqwatch::internal
