// The iterative engine against the whole Hessian of generated nets, whose columns are double
// backward passes in float64.

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/Parallel.h"
#include "ATen/TensorOperators.h"
#include "ATen/ops/bmm.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/embedding.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/gelu.h"
#include "ATen/ops/layer_norm.h"
#include "ATen/ops/linalg_eigh.h"
#include "ATen/ops/linalg_eigvalsh.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/mse_loss.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/randint.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/relu.h"
#include "ATen/ops/softmax.h"
#include "ATen/ops/tanh.h"
#include "ATen/ops/zeros.h"
#include "curvature/eigenpair.h"
#include "curvature/hessian_operator.h"
#include "support/tensor_surface.h"
#include "torch/csrc/autograd/autograd.h"

namespace ptqwatch::internal {
namespace dense_hessian_test {

using testing::TensorSurface;

enum class Kind { kTanh, kGelu, kRelu, kAttention };
enum class Loss { kSquares, kCrossEntropy };

struct Case {
  Kind kind = Kind::kTanh;
  Loss loss = Loss::kSquares;
  int64_t width = 0;
  uint64_t seed = 0;
};

std::string Name(const ::testing::TestParamInfo<Case>& info) {
  constexpr const char* kKinds[] = {"Tanh", "Gelu", "Relu", "Attention"};
  const Case& net = info.param;
  return std::string(kKinds[static_cast<int>(net.kind)]) +
         (net.loss == Loss::kSquares ? "Squares" : "CrossEntropy") + std::to_string(net.width) +
         "Seed" + std::to_string(net.seed);
}

// A net with random weights and a random batch, the same in any dtype.
class Net {
 public:
  Net(const Case& net, at::ScalarType dtype)
      : case_(net), dtype_(dtype), generator_(at::detail::createCPUGenerator(net.seed)) {
    if (net.kind == Kind::kAttention) {
      BuildAttention();
    } else {
      BuildMlp();
    }
    targets_ = net.loss == Loss::kSquares ? Normal({rows_, kOutputs}, 1)
                                          : at::randint(kOutputs, {rows_}, generator_, at::kLong);
    surface_.emplace(parameters_, [this](size_t) { return MeanLoss(); });
  }
  Net(const Net&) = delete;

  TensorSurface& surface() { return *surface_; }

  // [n, n], float64.
  at::Tensor DenseHessian() {
    at::AutoGradMode with_graph(true);
    std::vector<at::Tensor> leaves;
    for (const auto& [name, tensor] : parameters_) leaves.push_back(tensor);
    const auto flat = [](const torch::autograd::variable_list& parts) {
      std::vector<at::Tensor> rows;
      for (const at::Tensor& part : parts) rows.push_back(part.flatten());
      return at::cat(rows);
    };
    const at::Tensor gradient =
        flat(torch::autograd::grad({MeanLoss()}, leaves, {}, true, /*create_graph=*/true));
    const int64_t n = gradient.numel();
    at::Tensor hessian = at::empty({n, n}, at::kDouble);
    for (int64_t i = 0; i < n; ++i) {
      at::Tensor unit = at::zeros({n}, at::kDouble);
      unit[i] = 1;
      hessian[i].copy_(flat(torch::autograd::grad({gradient}, leaves, {unit}, true)));
    }
    return hessian;
  }

 private:
  static constexpr int64_t kInputs = 6;
  static constexpr int64_t kOutputs = 5;
  static constexpr int64_t kSequences = 4;
  static constexpr int64_t kTime = 6;

  at::Tensor Normal(at::IntArrayRef sizes, double scale) {
    return (at::randn(sizes, generator_, at::kDouble) * scale).to(dtype_);
  }
  at::Tensor Parameter(const std::string& name, at::IntArrayRef sizes, double scale) {
    return parameters_.emplace_back(name, Normal(sizes, scale)).second;
  }
  at::Tensor Matrix(const std::string& name, int64_t out, int64_t in) {
    return Parameter(name, {out, in}, 1 / std::sqrt(static_cast<double>(in)));
  }

  void BuildMlp() {
    rows_ = 24;
    inputs_ = Normal({rows_, kInputs}, 1);
    const std::vector<int64_t> sizes = {kInputs, case_.width, case_.width, kOutputs};
    for (size_t i = 0; i + 1 < sizes.size(); ++i) {
      const std::string layer = std::to_string(i);
      weights_.push_back(Matrix("weight" + layer, sizes[i + 1], sizes[i]));
      biases_.push_back(Parameter("bias" + layer, {sizes[i + 1]}, 0.1));
    }
  }

  // Embedding, layer norm, one head of attention with a residual, layer norm, head.
  void BuildAttention() {
    const int64_t width = case_.width;
    rows_ = kSequences * kTime;
    inputs_ = at::randint(kInputs, {kSequences, kTime}, generator_, at::kLong);
    weights_ = {Parameter("embedding", {kInputs, width}, 1), Matrix("qkv", 3 * width, width),
                Matrix("projection", width, width), Matrix("head", kOutputs, width)};
    for (const char* name : {"norm0", "norm1"}) {
      at::Tensor gain = Parameter(std::string(name) + ".weight", {width}, 0.1);
      gain.add_(1);
      gains_.push_back(gain);
      biases_.push_back(Parameter(std::string(name) + ".bias", {width}, 0.1));
    }
  }

  at::Tensor Outputs() {
    if (case_.kind == Kind::kAttention) return Attention();
    at::Tensor h = inputs_;
    for (size_t i = 0; i < weights_.size(); ++i) {
      h = at::linear(h, weights_[i], biases_[i]);
      if (i + 1 == weights_.size()) break;
      h = case_.kind == Kind::kTanh ? h.tanh() : case_.kind == Kind::kGelu ? at::gelu(h) : h.relu();
    }
    return h;
  }

  at::Tensor Attention() {
    const int64_t width = case_.width;
    const at::Tensor x = at::embedding(weights_[0], inputs_);
    const at::Tensor normed = at::layer_norm(x, {width}, gains_[0], biases_[0]);
    const std::vector<at::Tensor> parts = at::linear(normed, weights_[1]).chunk(3, -1);
    const at::Tensor scores = at::bmm(parts[0], parts[1].transpose(1, 2));
    const at::Tensor mixed =
        at::bmm(at::softmax(scores / std::sqrt(static_cast<double>(width)), -1), parts[2]);
    const at::Tensor h = x + at::linear(mixed, weights_[2]);
    return at::linear(at::layer_norm(h, {width}, gains_[1], biases_[1]), weights_[3]).flatten(0, 1);
  }

  at::Tensor MeanLoss() {
    return case_.loss == Loss::kSquares ? at::mse_loss(Outputs(), targets_)
                                        : at::cross_entropy_loss(Outputs(), targets_);
  }

  const Case case_;
  const at::ScalarType dtype_;
  at::Generator generator_;
  int64_t rows_ = 0;
  at::Tensor inputs_;
  at::Tensor targets_;
  TensorSurface::Parameters parameters_;
  std::vector<at::Tensor> weights_;
  std::vector<at::Tensor> gains_;
  std::vector<at::Tensor> biases_;
  std::optional<TensorSurface> surface_;
};

class DenseHessian : public ::testing::TestWithParam<Case> {
 protected:
  // Threads cost more than they save in matrices so small.
  static void SetUpTestSuite() { at::set_num_threads(1); }
};
class SmoothDenseHessian : public DenseHessian {};

TEST_P(DenseHessian, ItsExtremeEigenvaluesAreFoundWithinOnePercent) {
  Net net(GetParam(), at::kDouble);
  const at::Tensor values = at::linalg_eigvalsh(net.DenseHessian());
  ASSERT_LE(values.numel(), 1500);
  ExecutionContext context;
  for (HessianMode mode : {HessianMode::kRetainedGraph, HessianMode::kRecomputedGraph}) {
    auto hessian = HessianOperator::Create(&net.surface(), mode, context);
    ASSERT_TRUE(hessian.ok()) << hessian.status();
    for (SpectrumEnd end : {SpectrumEnd::kTop, SpectrumEnd::kBottom}) {
      const double exact = values[end == SpectrumEnd::kTop ? -1 : 0].item<double>();
      const auto found = ExtremeEigenpair(
          **hessian, {}, {.end = end, .residual_ratio = 0.005, .max_products = 200}, {}, context);
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_TRUE(found->pair.converged);
      EXPECT_NEAR(found->pair.value, exact, 0.01 * std::abs(exact))
          << found->pair.products << " products";
    }
  }
}

TEST_P(SmoothDenseHessian, AFiniteDifferenceInFloat32IsWithinAThousandthOfTheProduct) {
  Net exact(GetParam(), at::kDouble);
  const at::Tensor dense = exact.DenseHessian();
  const int64_t n = dense.size(0);
  const at::Tensor vectors = std::get<1>(at::linalg_eigh(dense));
  at::Generator generator = at::detail::createCPUGenerator(GetParam().seed + 1000);
  const std::pair<const char*, at::Tensor> directions[] = {
      {"random", at::randn({n}, generator, at::kDouble)},
      {"another random", at::randn({n}, generator, at::kDouble)},
      {"top eigenvector", vectors.select(1, n - 1)},
      {"second eigenvector", vectors.select(1, n - 2)},
      {"bottom eigenvector", vectors.select(1, 0)}};

  Net net(GetParam(), at::kFloat);
  ExecutionContext context;
  auto hessian = HessianOperator::Create(&net.surface(), HessianMode::kFiniteDifference, context);
  ASSERT_TRUE(hessian.ok()) << hessian.status();
  Vector v = net.surface().space().Zero();
  Vector hv = net.surface().space().Zero();
  for (const auto& [name, direction] : directions) {
    v.elements.copy_(direction);
    ASSERT_TRUE((*hessian)->Apply(v, hv, context).ok());
    const at::Tensor product = dense.mv(direction);
    const double gap =
        ((hv.elements.to(at::kDouble) - product).norm() / product.norm()).item<double>();
    EXPECT_LT(gap, 1e-3) << name;
  }
}

std::vector<Case> Cases(const std::vector<Kind>& kinds) {
  std::vector<Case> cases;
  for (Kind kind : kinds) {
    for (Loss loss : {Loss::kSquares, Loss::kCrossEntropy}) {
      for (uint64_t seed : {1, 2, 3}) {
        cases.push_back({kind, loss, kind == Kind::kAttention ? 8 : 16, seed});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(
    Nets, DenseHessian,
    ::testing::ValuesIn(Cases({Kind::kTanh, Kind::kGelu, Kind::kRelu, Kind::kAttention})), Name);
// 1,400 parameters.
INSTANTIATE_TEST_SUITE_P(Large, DenseHessian,
                         ::testing::Values(Case{Kind::kGelu, Loss::kCrossEntropy, 32, 4}), Name);
// A difference sees the kinks of ReLU, a second derivative does not.
INSTANTIATE_TEST_SUITE_P(Nets, SmoothDenseHessian,
                         ::testing::ValuesIn(Cases({Kind::kTanh, Kind::kGelu, Kind::kAttention})),
                         Name);

}  // namespace dense_hessian_test
}  // namespace ptqwatch::internal
