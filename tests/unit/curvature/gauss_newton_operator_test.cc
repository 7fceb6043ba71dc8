#include "curvature/gauss_newton_operator.h"

#include <gmock/gmock.h>

#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/diag.h"
#include "ATen/ops/linalg_eigvalsh.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/outer.h"
#include "ATen/ops/softmax.h"
#include "ATen/ops/stack.h"
#include "ATen/ops/zeros.h"
#include "support/tensor_surface.h"
#include "torch/csrc/autograd/autograd.h"
#include "unit/curvature/tanh_net.h"

namespace ptqwatch::internal {
namespace gauss_newton_operator_test {

using ::testing::HasSubstr;
using testing::TanhNet;
using testing::TensorSurface;
using testing::Waves;

// 4 -> 3 (tanh) -> 3 logits, cross-entropy of 5 rows in two batches.
struct Net {
  Net()
      : first(Waves({3, 4}, 0.5, 1).to(at::kDouble)),
        second(Waves({3, 3}, 0.7, 2).to(at::kDouble)),
        inputs(Waves({5, 4}, 1.5, 3).to(at::kDouble)),
        targets(at::arange(5, at::kLong) % 3),
        surface(
            {{"first", first}, {"second", second}},
            [this](size_t batch) { return Loss(Logits(batch), batch); }, 2) {
    surface.set_logits([this](size_t batch) -> LossSurface::LossAndLogits {
      const at::Tensor logits = Logits(batch);
      return {Loss(logits, batch), logits};
    });
  }
  at::Tensor Rows(const at::Tensor& all, size_t batch) const {
    return batch == 0 ? all.narrow(0, 0, 3) : all.narrow(0, 3, 2);
  }
  at::Tensor Logits(size_t batch) const {
    return at::linear(at::linear(Rows(inputs, batch), first).tanh(), second);
  }
  at::Tensor Loss(const at::Tensor& logits, size_t batch) const {
    return at::cross_entropy_loss(logits, Rows(targets, batch), {}, at::Reduction::Sum) / 5;
  }
  // J' (diag(p) - p p') J / 5, row by row.
  at::Tensor Dense() const {
    at::Tensor sum = at::zeros({21, 21}, at::kDouble);
    for (size_t batch = 0; batch < 2; ++batch) {
      const at::Tensor logits = Logits(batch);
      for (int64_t row = 0; row < logits.size(0); ++row) {
        std::vector<at::Tensor> rows;
        for (int64_t k = 0; k < 3; ++k) {
          const auto g = torch::autograd::grad({logits[row][k]}, {first, second}, {},
                                               /*retain_graph=*/true);
          rows.push_back(at::cat({g[0].flatten(), g[1].flatten()}));
        }
        const at::Tensor j = at::stack(rows);
        const at::Tensor p = logits[row].detach().softmax(0);
        sum += j.t().matmul((at::diag(p) - at::outer(p, p)).matmul(j)) / 5;
      }
    }
    return sum;
  }
  ExecutionContext context;
  at::Tensor first;
  at::Tensor second;
  at::Tensor inputs;
  at::Tensor targets;
  TensorSurface surface;
};

TEST(GaussNewton, IsTheDenseMatrix) {
  Net net;
  const at::Tensor dense = net.Dense();
  auto matrix = HessianOperator::Create(&net.surface, HessianMode::kGaussNewton, net.context);
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  const VectorSpace& space = (*matrix)->space();
  for (int64_t i = 0; i < space.dimension(); ++i) {
    Vector v = space.Zero();
    v.elements[i] = 1;
    Vector gv = space.Zero();
    ASSERT_TRUE((*matrix)->Apply(v, gv, net.context).ok());
    EXPECT_LT((gv.elements - dense[i]).abs().max().item<double>(), 1e-12) << i;
  }
  EXPECT_GT(at::linalg_eigvalsh(dense)[0].item<double>(), -1e-12);
}

TEST(GaussNewton, WhatIsMissingIsAStatus) {
  Net net;
  const auto product = [&] {
    auto matrix = HessianOperator::Create(&net.surface, HessianMode::kGaussNewton, net.context);
    EXPECT_TRUE(matrix.ok()) << matrix.status();
    Vector v = (*matrix)->space().Zero();
    v.elements.fill_(1);
    Vector gv = (*matrix)->space().Zero();
    return std::string((*matrix)->Apply(v, gv, net.context).message());
  };
  net.surface.set_logits(nullptr);
  EXPECT_THAT(product(), HasSubstr("returns no LossValues::logits"));
  net.surface.set_logits([&](size_t batch) -> LossSurface::LossAndLogits {
    const at::Tensor logits = net.Logits(batch);
    return {logits.sum(), logits};
  });
  EXPECT_THAT(product(), HasSubstr("linear in LossValues::logits"));
  net.surface.set_logits([&](size_t batch) -> LossSurface::LossAndLogits {
    return {net.Loss(net.Logits(batch), batch), net.Logits(batch)};
  });
  EXPECT_THAT(product(), HasSubstr("does not depend on LossValues::logits"));
}

TEST(GaussNewton, ASubjectWithLogitsIsMeasuredWithIt) {
  TanhNet net;
  net.engine.mode = HessianMode::kGaussNewton;
  EXPECT_THAT(
      std::string(net.Measure().status().message()),
      HasSubstr("curvature.mode = gauss_newton: gauss_newton: the losses closure returns no"));
  net.losses = [](const TensorMap& p, const Batch& b) -> LossValues {
    const at::Tensor h = at::linear(b[0], p.at("in.weight"), p.at("in.bias")).tanh();
    LossValues all;
    all.logits = at::linear(at::linear(h, p.at("mid.weight")).tanh(), p.at("out.weight"));
    all.values = at::cross_entropy_loss(all.logits, b[1], {}, at::Reduction::None);
    return all;
  };
  net.options.curvature.bottom_eigenvalue = true;
  auto measurement = net.Measure();
  ASSERT_TRUE(measurement.ok()) << measurement.status();
  const Report report = TanhNet::Run(**measurement);
  ASSERT_EQ(report.curvature->status, ProbeStatus::kOk) << report.curvature->status_detail;
  EXPECT_EQ(report.curvature->mode, HessianMode::kGaussNewton);
  EXPECT_GT(*report.curvature->bottom_eigenvalue, -1e-4 * *report.curvature->top_eigenvalue);
}

}  // namespace gauss_newton_operator_test
}  // namespace ptqwatch::internal
