#include "muon.h"

#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/diag_embed.h"
#include "ATen/ops/linalg_svd.h"
#include "ATen/ops/logspace.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/zeros.h"
#include "char_model.h"
#include "gtest/gtest.h"
#include "optimizer.h"
#include "torch/utils.h"

namespace ptqwatch::examples {
namespace muon_test {

double Difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// The singular value that five steps of the iteration make of one.
at::Tensor Iterated(at::Tensor s) {
  for (int i = 0; i < 5; ++i) s = 3.4445 * s - 4.7750 * s.pow(3) + 2.0315 * s.pow(5);
  return s;
}

// Random singular vectors with the given singular values.
at::Tensor WithSingularValues(int64_t rows, int64_t columns, const at::Tensor& values) {
  torch::manual_seed(1);
  const auto [u, s, v] =
      at::linalg_svd(at::randn({rows, columns}, at::kDouble), /*full_matrices=*/false);
  return at::matmul(at::matmul(u, at::diag_embed(values.to(at::kDouble))), v);
}

TEST(Orthogonalized, KeepsTheSingularVectorsAndIteratesTheSingularValues) {
  const std::vector<std::pair<int64_t, int64_t>> shapes = {{24, 40}, {40, 24}, {24, 24}};
  for (const auto& [rows, columns] : shapes) {
    torch::manual_seed(2);
    const at::Tensor matrix = at::randn({rows, columns}, at::kFloat);
    const auto [u, s, v] = at::linalg_svd(matrix.to(at::kDouble), /*full_matrices=*/false);
    const at::Tensor expected =
        at::matmul(at::matmul(u, at::diag_embed(Iterated(s / s.norm()))), v);
    EXPECT_LT(Difference(Orthogonalized(matrix), expected), 1e-4) << rows << " x " << columns;
  }
}

TEST(Orthogonalized, IsNearThePolarFactorOfMatricesOfAnyScale) {
  const at::Tensor values = at::logspace(0, -1.5, 12, 10, at::kDouble);
  for (const double scale : {1e-12, 1.0, 1e12}) {
    const at::Tensor matrix = WithSingularValues(12, 20, scale * values);
    const auto [u, s, v] = at::linalg_svd(matrix, /*full_matrices=*/false);
    const at::Tensor found = Orthogonalized(matrix.to(at::kFloat)).to(at::kDouble);
    const at::Tensor inner = at::matmul(at::matmul(u.t(), found), v.t());
    EXPECT_GT(inner.diag().min().item<double>(), 0.6) << scale;
    EXPECT_LT(inner.diag().max().item<double>(), 1.3) << scale;
    EXPECT_LT(Difference(inner, at::diag_embed(inner.diag())), 1e-4) << scale;
    // The spectral distance to the polar factor.
    const at::Tensor distance = std::get<1>(at::linalg_svd(found - at::matmul(u, v)));
    EXPECT_LT(distance.max().item<double>(), 0.4) << scale;
  }
}

TEST(Orthogonalized, OfZeroIsZero) {
  EXPECT_EQ(Orthogonalized(at::zeros({3, 5})).abs().max().item<double>(), 0);
}

TEST(Muon, StepsAlongTheOrthogonalizedNesterovMomentum) {
  torch::manual_seed(3);
  at::Tensor matrix = at::randn({8, 18}, at::kFloat).set_requires_grad(true);
  const at::Tensor start = matrix.detach().clone();
  const std::vector<at::Tensor> gradients = {at::randn({8, 18}), at::randn({8, 18})};
  Muon muon({matrix}, /*weight_decay=*/0.5);

  at::Tensor expected = start.to(at::kDouble);
  at::Tensor momentum = at::zeros({8, 18}, at::kDouble);
  for (const at::Tensor& gradient : gradients) {
    matrix.mutable_grad() = gradient.clone();
    muon.Step(0.1);
    const at::Tensor g = gradient.to(at::kDouble);
    momentum = 0.95 * momentum + 0.05 * g;
    const at::Tensor step = Orthogonalized(0.05 * g + 0.95 * momentum);
    expected = 0.95 * expected - 0.1 * 0.2 * std::sqrt(18.0) * step;
    EXPECT_LT(Difference(matrix.detach(), expected), 1e-5);
    EXPECT_LT(Difference(muon.Momentum(matrix), momentum), 1e-6);
  }
  EXPECT_FALSE(muon.Momentum(start).defined());
}

TEST(Optimizer, GivesMuonTheMatricesBetweenEmbeddingsAndHead) {
  const ModelConfig config = {.vocabulary = 10, .width = 8, .layers = 2, .heads = 2, .length = 4};
  for (const auto& [model, hidden] :
       {std::pair(MakeMlp(config), 2), std::pair(MakeGpt(config), 2 * 4)}) {
    const Optimizer muon(*model, /*muon=*/true, 0.1);
    const Optimizer adamw(*model, /*muon=*/false, 0.1);
    int found = 0;
    size_t rest = 0;
    for (const auto& item : model->named_parameters()) {
      EXPECT_FALSE(adamw.muon().Momentum(item.value()).defined());
      const bool is_ours = muon.muon().Momentum(item.value()).defined();
      if (!is_ours) continue;
      ++found;
      EXPECT_EQ(item.value().dim(), 2);
      EXPECT_EQ(item.key().find("head"), std::string::npos);
      EXPECT_EQ(item.key().find("characters"), std::string::npos);
      EXPECT_EQ(item.key().find("positions"), std::string::npos);
    }
    EXPECT_EQ(found, hidden);
    for (const auto& group : muon.adamw().param_groups()) rest += group.params().size();
    EXPECT_EQ(rest + static_cast<size_t>(found), model->parameters().size());
  }
}

}  // namespace muon_test
}  // namespace ptqwatch::examples
