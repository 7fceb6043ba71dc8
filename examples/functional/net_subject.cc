// The only file of this trainer that uses LibTorch. It wraps the arrays as tensors and repeats the
// model as a function of tensors.

#include "net_subject.h"

#include <algorithm>
#include <string>

#include "ATen/TensorOperators.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/embedding.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/from_blob.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/relu.h"
#include "ATen/ops/rsqrt.h"

namespace ptqwatch::examples {
namespace {

constexpr int64_t kBatch = 2048;
constexpr size_t kCurvatureWindows = 4096;

at::Tensor Norm(const at::Tensor& z) {
  return z * at::rsqrt(z.square().mean(-1, /*keepdim=*/true) + Net::kNormEpsilon);
}

}  // namespace

LossValues NetLosses(const TensorMap& weights, const Batch& batch) {
  const int64_t context = batch[0].size(1) - 1;
  at::Tensor x = at::embedding(weights.at("embedding"), batch[0].narrow(1, 0, context)).flatten(1);
  for (int layer = 1; layer <= Net::kHiddenLayers; ++layer) {
    const at::Tensor y =
        at::relu(Norm(at::matmul(x, weights.at("hidden_" + std::to_string(layer)))));
    x = layer == 1 ? y : x + y;
  }
  const at::Tensor logits = at::matmul(x, weights.at("head"));
  // [sequences, time], with one prediction per sequence.
  return at::cross_entropy_loss(logits, batch[0].select(1, context), /*weight=*/{},
                                at::Reduction::None)
      .unsqueeze(1);
}

std::vector<NamedTensor> WrapWeights(Net& net) {
  std::vector<NamedTensor> tensors;
  for (Weight& weight : net.weights()) {
    tensors.push_back(
        {weight.name,
         at::from_blob(weight.values.data(), {weight.rows, weight.columns}, at::kFloat),
         /*is_parameter=*/true});
  }
  return tensors;
}

std::vector<Batch> WindowBatches(std::span<const Window> windows, int64_t context, int64_t size) {
  std::vector<Batch> batches;
  while (!windows.empty()) {
    const int64_t count = std::min(size, std::ssize(windows));
    const at::Tensor tensor = at::empty({count, context + 1}, at::kLong);
    int64_t* to = tensor.mutable_data_ptr<int64_t>();
    for (const Window window : windows.first(static_cast<size_t>(count))) {
      to = std::copy_n(window, context + 1, to);
    }
    batches.push_back({tensor});
    windows = windows.subspan(static_cast<size_t>(count));
  }
  return batches;
}

OptimizerView ViewOf(AdamW& optimizer, const Net& net) {
  OptimizerView view{.kind = OptimizerKind::kAdamW,
                     .beta1 = AdamW::kBeta1,
                     .beta2 = AdamW::kBeta2,
                     .epsilon = AdamW::kEpsilon};
  for (size_t i = 0; i < net.weights().size(); ++i) {
    const Weight& weight = net.weights()[i];
    view.parameters.push_back(
        {.name = weight.name,
         .learning_rate = optimizer.learning_rate(),
         .weight_decay = optimizer.weight_decay(),
         .steps = optimizer.steps(),
         .second_moment = at::from_blob(optimizer.second_moment(i).data(),
                                        {weight.rows, weight.columns}, at::kFloat)});
  }
  return view;
}

std::unique_ptr<Subject> MakeNetSubject(Net& net, AdamW& optimizer, std::span<const Window> probe,
                                        std::span<const Window> calibration) {
  const int64_t context = net.shape().context;
  const auto curvature = calibration.first(std::min(kCurvatureWindows, calibration.size()));
  return MakeFunctionSubject({.live = WrapWeights(net),
                              .losses = NetLosses,
                              .probe = WindowBatches(probe, context, kBatch),
                              .calibration = WindowBatches(calibration, context, kBatch),
                              .curvature = WindowBatches(curvature, context, kBatch),
                              .optimizer = [&] { return ViewOf(optimizer, net); }});
}

}  // namespace ptqwatch::examples
