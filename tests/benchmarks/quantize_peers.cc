#include "benchmarks/quantize_peers.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <dlfcn.h>

#include <map>
#include <utility>

namespace ptqwatch::benchmarks {
namespace {

using DpotrfFunction = void (*)(const char* uplo, const int* n, double* a, const int* lda,
                                int* info);

DpotrfFunction FindDpotrf() {
  return reinterpret_cast<DpotrfFunction>(dlsym(RTLD_DEFAULT, "dpotrf_"));
}

void Gemm(int64_t size, at::ScalarType type) {
  at::set_num_threads(1);
  static std::map<std::pair<int64_t, at::ScalarType>, std::vector<at::Tensor>> operands;
  std::vector<at::Tensor>& held = operands[{size, type}];
  if (held.empty()) {
    for (int i = 0; i < 3; ++i) held.push_back(at::rand({size, size}, type));
  }
  at::mm_out(held[2], held[0], held[1]);
}

}  // namespace

struct QuantizePeers::State {
  at::Tensor inputs, gram_out, weight, hessian, factor_input, factor;
};

QuantizePeers::QuantizePeers(const std::vector<float>& inputs, const std::vector<float>& weight,
                             const std::vector<double>& gram, int64_t tokens, int64_t rows,
                             int64_t cols)
    : state_(std::make_unique<State>()) {
  at::set_num_threads(1);
  const auto floats = [](const std::vector<float>& values, int64_t r, int64_t c) {
    return at::from_blob(const_cast<float*>(values.data()), {r, c}, at::kFloat).clone();
  };
  state_->inputs = floats(inputs, tokens, cols);
  state_->weight = floats(weight, rows, cols);
  state_->gram_out = at::empty({cols, cols}, at::kFloat);
  const at::Tensor exact =
      at::from_blob(const_cast<double*>(gram.data()), {cols, cols}, at::kDouble);
  state_->hessian = exact.to(at::kFloat);
  state_->factor_input = exact.clone();
  state_->factor_input.diagonal().add_(0.01 * exact.diagonal().mean().item<double>());
  state_->factor = state_->factor_input.clone();
}

QuantizePeers::~QuantizePeers() = default;

void QuantizePeers::GramGemm() { at::mm_out(state_->gram_out, state_->inputs.t(), state_->inputs); }

void QuantizePeers::RestoreFactorInput() { state_->factor.copy_(state_->factor_input); }

void QuantizePeers::Dpotrf() {
  static const DpotrfFunction dpotrf = FindDpotrf();
  if (dpotrf == nullptr) {
    state_->factor = at::linalg_cholesky(state_->factor);
    return;
  }
  const int n = static_cast<int>(state_->factor.size(0));
  int info = 0;
  dpotrf("L", &n, state_->factor.data_ptr<double>(), &n, &info);
  TORCH_CHECK(info == 0, "dpotrf: ", info);
}

void QuantizePeers::PublishedGptq() {
  constexpr int64_t kBlock = 128;
  constexpr int64_t kGroup = 128;
  constexpr float kTop = 15;
  constexpr float kZero = 8;
  const at::NoGradGuard no_grad;
  const int64_t cols = state_->weight.size(1);

  at::Tensor weight = state_->weight.clone();
  std::vector<at::Tensor> scales;
  for (int64_t c = 0; c < cols; c += kGroup) {
    const at::Tensor largest =
        weight.slice(1, c, std::min(cols, c + kGroup)).abs().amax({1}, /*keepdim=*/true);
    scales.push_back(largest.mul(2 / kTop).squeeze(1));
  }
  const at::Tensor order = at::argsort(state_->hessian.diagonal(), /*dim=*/0, /*descending=*/true);
  const int64_t* order_at = order.data_ptr<int64_t>();
  weight = weight.index_select(1, order);
  at::Tensor inverse = state_->hessian.index_select(0, order).index_select(1, order);
  inverse.diagonal().add_(0.01 * inverse.diagonal().mean().item<double>());
  inverse = at::linalg_cholesky(at::cholesky_inverse(at::linalg_cholesky(inverse)),
                                /*upper=*/true);

  at::Tensor result = at::zeros_like(weight);
  at::Tensor losses = at::zeros_like(weight);
  for (int64_t begin = 0; begin < cols; begin += kBlock) {
    const int64_t end = std::min(cols, begin + kBlock);
    at::Tensor block = weight.slice(1, begin, end).clone();
    at::Tensor errors = at::zeros_like(block);
    const at::Tensor factor = inverse.slice(0, begin, end).slice(1, begin, end);
    for (int64_t i = 0; i < end - begin; ++i) {
      const at::Tensor column = block.select(1, i);
      const at::Tensor pivot = factor.select(0, i).select(0, i);
      const at::Tensor& scale = scales[static_cast<size_t>(order_at[begin + i] / kGroup)];
      const at::Tensor code = at::clamp(at::round(column / scale) + kZero, 0, kTop);
      const at::Tensor rounded = scale * (code - kZero);
      result.select(1, begin + i).copy_(rounded);
      const at::Tensor error = (column - rounded) / pivot;
      losses.select(1, begin + i).copy_(error.square());
      block.slice(1, i).sub_(
          error.unsqueeze(1).matmul(factor.select(0, i).slice(0, i).unsqueeze(0)));
      errors.select(1, i).copy_(error);
    }
    if (end < cols) {
      weight.slice(1, end).sub_(errors.matmul(inverse.slice(0, begin, end).slice(1, end)));
    }
  }
  result = result.index_select(1, at::argsort(order));
  TORCH_CHECK(at::isfinite(losses.sum()).item<bool>(), "the published form failed");
}

void Sgemm(int64_t size) { Gemm(size, at::kFloat); }
void Dgemm(int64_t size) { Gemm(size, at::kDouble); }

}  // namespace ptqwatch::benchmarks
