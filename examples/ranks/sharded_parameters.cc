#include "sharded_parameters.h"

#include <algorithm>

#include "ATen/core/grad_mode.h"
#include "optimizer.h"
#include "ptqwatch/torch_optimizer.h"

namespace ptqwatch::examples {
namespace {

struct Rows {
  int64_t first;
  int64_t count;
};

Rows RowsOf(const at::Tensor& whole, int64_t rank, int64_t ranks) {
  const int64_t rows = whole.size(0);
  const int64_t most = (rows + ranks - 1) / ranks;
  const int64_t first = std::min(rows, rank * most);
  return {first, std::min(most, rows - first)};
}

at::Tensor PartOf(const at::Tensor& whole, int64_t rank, int64_t ranks) {
  const Rows rows = RowsOf(whole, rank, ranks);
  return whole.narrow(0, rows.first, rows.count);
}

std::vector<NamedTensor> MakeParts(const CharModel& model, int64_t rank, int64_t ranks) {
  std::vector<NamedTensor> parts;
  for (const auto& item : model.named_parameters()) {
    const at::Tensor& whole = item.value();
    std::vector<int64_t> offset(static_cast<size_t>(whole.dim()), 0);
    offset[0] = RowsOf(whole, rank, ranks).first;
    parts.push_back({.name = item.key(),
                     .tensor = PartOf(whole.detach(), rank, ranks).clone().requires_grad_(),
                     .is_parameter = true,
                     .global_shape = whole.sizes().vec(),
                     .offset = std::move(offset)});
  }
  return parts;
}

std::vector<at::Tensor> TensorsOf(const std::vector<NamedTensor>& parts) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& part : parts) tensors.push_back(part.tensor);
  return tensors;
}

}  // namespace

ShardedParameters::ShardedParameters(CharModel* model, RankGroup* group, int64_t rank,
                                     int64_t ranks, double weight_decay)
    : model_(*model),
      group_(*group),
      ranks_(ranks),
      parts_(MakeParts(*model, rank, ranks)),
      optimizer_(MakeAdamW(TensorsOf(parts_), weight_decay)) {}

void ShardedParameters::Step(double learning_rate) {
  const std::vector<at::Tensor> whole = model_.parameters();
  for (size_t i = 0; i < parts_.size(); ++i) {
    const auto& part = parts_[i];
    at::Tensor tensor = part.tensor;
    tensor.mutable_grad() = whole[i].grad().narrow(0, part.offset[0], tensor.size(0)).clone();
  }
  for (auto& group : optimizer_.param_groups()) group.options().set_lr(learning_rate);
  optimizer_.step();

  const at::NoGradGuard no_grad;
  std::vector<std::vector<at::Tensor>> destinations;
  for (int64_t rank = 0; rank < ranks_; ++rank) {
    std::vector<at::Tensor>& of_rank = destinations.emplace_back();
    for (const at::Tensor& tensor : whole) of_rank.push_back(PartOf(tensor, rank, ranks_));
  }
  group_.Gather(TensorsOf(parts_), destinations);
}

OptimizerView ShardedParameters::Optimizer() const { return ViewOf(optimizer_, parts_); }

}  // namespace ptqwatch::examples
