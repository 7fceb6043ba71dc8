#include "training_state.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <sstream>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/empty.h"
#include "ptqwatch/offline/safetensors.h"

namespace ptqwatch::examples {
namespace {

constexpr char kGenerator[] = "generator";
constexpr char kFirstMoment[] = ".exp_avg";
constexpr char kSecondMoment[] = ".exp_avg_sq";
constexpr char kSteps[] = ".steps";
constexpr char kMomentumBuffer[] = ".momentum_buffer";

TensorSource SourceOf(const std::string& name, const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().contiguous();
  return MakeTensorSource(
      name, TensorDtype::kF32, values.sizes().vec(),
      std::string(static_cast<const char*>(values.const_data_ptr()), values.nbytes()));
}

absl::Status Damaged(const SafetensorsFile& file, const std::string& what) {
  return absl::DataLossError(file.path() + ": " + what);
}

/// Fills `tensor`, which must be float32 and contiguous.
absl::Status Read(const SafetensorsFile& file, const std::string& name, at::Tensor tensor) {
  const TensorInfo* info = file.Find(name);
  if (info == nullptr) return Damaged(file, "has no " + name);
  if (info->dtype != TensorDtype::kF32 || info->shape != tensor.sizes().vec()) {
    return Damaged(file, name + " is " + info->Describe() + ", which belongs to another model");
  }
  return file.ReadBytes(name, 0, {static_cast<char*>(tensor.mutable_data_ptr()), tensor.nbytes()});
}

absl::Status ReadMoments(const SafetensorsFile& file, const std::string& name,
                         const at::Tensor& parameter, torch::optim::AdamW& optimizer) {
  const auto steps = file.metadata().find(name + kSteps);
  if (steps == file.metadata().end()) return Damaged(file, "has no " + name + kSteps);
  auto state = std::make_unique<torch::optim::AdamWParamState>();
  state->step(std::stoll(steps->second));
  const at::Tensor first = at::empty(parameter.sizes(), at::kFloat);
  const at::Tensor second = at::empty(parameter.sizes(), at::kFloat);
  if (absl::Status read = Read(file, name + kFirstMoment, first); !read.ok()) return read;
  if (absl::Status read = Read(file, name + kSecondMoment, second); !read.ok()) return read;
  state->exp_avg(first);
  state->exp_avg_sq(second);
  optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
  return absl::OkStatus();
}

}  // namespace

absl::Status SaveTrainingState(const std::string& path, const torch::nn::Module& model,
                               const Optimizer& optimizer, const std::mt19937_64& generator) {
  std::vector<TensorSource> tensors;
  TensorMetadata metadata;
  for (const auto& item : model.named_parameters()) {
    tensors.push_back(SourceOf(item.key(), item.value()));
    if (const at::Tensor momentum = optimizer.muon().Momentum(item.value()); momentum.defined()) {
      tensors.push_back(SourceOf(item.key() + kMomentumBuffer, momentum));
      continue;
    }
    const auto& states = optimizer.adamw().state();
    const auto found = states.find(item.value().unsafeGetTensorImpl());
    if (found == states.end()) continue;
    const auto& state = static_cast<const torch::optim::AdamWParamState&>(*found->second);
    tensors.push_back(SourceOf(item.key() + kFirstMoment, state.exp_avg()));
    tensors.push_back(SourceOf(item.key() + kSecondMoment, state.exp_avg_sq()));
    metadata[item.key() + kSteps] = std::to_string(state.step());
  }
  std::ostringstream text;
  text << generator;
  metadata[kGenerator] = text.str();
  return WriteSafetensors(path, tensors, metadata);
}

absl::Status LoadTrainingState(const std::string& path, torch::nn::Module& model,
                               Optimizer& optimizer, std::mt19937_64& generator) {
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  if (!file.ok()) return file.status();
  const at::NoGradGuard no_grad;
  for (const auto& item : model.named_parameters()) {
    if (absl::Status read = Read(*file, item.key(), item.value()); !read.ok()) return read;
    const at::Tensor momentum = optimizer.muon().Momentum(item.value());
    const absl::Status read = momentum.defined()
                                  ? Read(*file, item.key() + kMomentumBuffer, momentum)
                                  : ReadMoments(*file, item.key(), item.value(), optimizer.adamw());
    if (!read.ok()) return read;
  }
  const auto text = file->metadata().find(kGenerator);
  if (text == file->metadata().end()) return Damaged(*file, "has no generator");
  std::istringstream stream(text->second);
  if (!(stream >> generator)) return Damaged(*file, "its generator cannot be read");
  return absl::OkStatus();
}

absl::Status SaveModelWeights(const std::string& path, const torch::nn::Module& model) {
  std::vector<TensorSource> tensors;
  for (const auto& item : model.named_parameters()) {
    tensors.push_back(SourceOf(item.key(), item.value()));
  }
  return WriteSafetensors(path, tensors);
}

absl::Status SetModelWeights(const std::vector<NamedTensor>& weights, torch::nn::Module& model) {
  const at::NoGradGuard no_grad;
  for (const auto& item : model.named_parameters()) {
    const auto found = std::find_if(weights.begin(), weights.end(), [&](const NamedTensor& weight) {
      return weight.name == item.key();
    });
    if (found == weights.end()) {
      return absl::InvalidArgumentError("the weights lack " + item.key());
    }
    if (found->tensor.sizes() != item.value().sizes()) {
      return absl::InvalidArgumentError(item.key() + " has another shape");
    }
    item.value().copy_(found->tensor);
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch::examples
