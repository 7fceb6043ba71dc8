#include "muon.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/addmm.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/zeros_like.h"

namespace ptqwatch::examples {
namespace {

constexpr double kMomentum = 0.95;
constexpr double kStepPerRate = 0.2;
constexpr int kIterations = 5;
constexpr double kLinear = 3.4445, kCubic = -4.7750, kQuintic = 2.0315;
constexpr double kTiny = 1e-30;

}  // namespace

at::Tensor Orthogonalized(const at::Tensor& matrix) {
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = tall ? matrix.t() : matrix;
  x = x / (x.norm() + kTiny);
  for (int i = 0; i < kIterations; ++i) {
    const at::Tensor square = at::matmul(x, x.t());
    const at::Tensor factor = at::addmm(square, square, square, kCubic, kQuintic);
    x = at::addmm(x, factor, x, kLinear);
  }
  return tall ? x.t() : x;
}

Muon::Muon(std::vector<at::Tensor> matrices, double weight_decay) : weight_decay_(weight_decay) {
  for (at::Tensor& matrix : matrices) {
    at::Tensor momentum = at::zeros_like(matrix.detach());
    entries_.push_back({std::move(matrix), std::move(momentum)});
  }
}

void Muon::Step(double learning_rate) {
  const at::NoGradGuard no_grad;
  for (Entry& entry : entries_) {
    const at::Tensor& gradient = entry.matrix.grad();
    entry.momentum.lerp_(gradient, 1 - kMomentum);
    const at::Tensor step = Orthogonalized(gradient.lerp(entry.momentum, kMomentum));
    const int64_t longer = std::max(entry.matrix.size(0), entry.matrix.size(1));
    entry.matrix.mul_(1 - learning_rate * weight_decay_);
    entry.matrix.sub_(step, learning_rate * kStepPerRate * std::sqrt(static_cast<double>(longer)));
  }
}

at::Tensor Muon::Momentum(const at::Tensor& matrix) const {
  for (const Entry& entry : entries_) {
    if (entry.matrix.is_same(matrix)) return entry.momentum;
  }
  return {};
}

}  // namespace ptqwatch::examples
