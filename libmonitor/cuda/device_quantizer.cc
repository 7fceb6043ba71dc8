#include "cuda/device_quantizer.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "cuda/group_steps.h"
#include "cuda/layer_state.h"

namespace ptqwatch::internal {
namespace {

// Layers that may be quantized together.
struct Candidates {
  std::vector<LayerState*> layers;
  bool shared = false;  // all have the same inputs; a second layer decides
};

// Clears the grid's options, which may differ between the layers of a group.
QuantizerSpec WithoutGrid(QuantizerSpec spec) {
  if (!MethodOf(spec).grid) return spec;
  const QuantizerSpec defaults;
  spec.bits = defaults.bits;
  spec.format = defaults.format;
  spec.scale_rule = defaults.scale_rule;
  spec.group_rows = defaults.group_rows;
  spec.group_size = defaults.group_size;
  spec.symmetric = defaults.symmetric;
  spec.narrow_range = defaults.narrow_range;
  spec.scale_dtype = defaults.scale_dtype;
  spec.min_scale = defaults.min_scale;
  return spec;
}

bool Alike(const LayerState& a, const LayerState& b) {
  return a.layer().rows == b.layer().rows && a.layer().cols == b.layer().cols &&
         WithoutGrid(a.layer().spec) == WithoutGrid(b.layer().spec) && a.attempt() == b.attempt();
}

bool Admits(const Candidates& group, const LayerState& state) {
  const LayerState& first = *group.layers.front();
  const int64_t most = MostLayers(state.layer().rows, state.layer().cols);
  if (!Alike(first, state) || static_cast<int64_t>(group.layers.size()) >= most) return false;
  if (!state.attempt().use_moments) return true;
  const auto same = [&](const LayerState* other) {
    return other->layer().gram == state.layer().gram;
  };
  if (group.layers.size() == 1) return true;
  return group.shared ? same(&first) : std::none_of(group.layers.begin(), group.layers.end(), same);
}

std::vector<Candidates> GroupLayers(std::vector<LayerState>& states) {
  std::vector<Candidates> groups;
  for (LayerState& state : states) {
    if (!state.pending()) continue;
    const auto found = std::find_if(groups.begin(), groups.end(),
                                    [&](const Candidates& group) { return Admits(group, state); });
    if (found == groups.end()) {
      groups.push_back({.layers = {&state}});
      continue;
    }
    if (found->layers.size() == 1) {
      found->shared = found->layers[0]->layer().gram == state.layer().gram;
    }
    found->layers.push_back(&state);
  }
  return groups;
}

LayerGroup MakeGroup(std::span<LayerState* const> layers, bool shared) {
  const LayerState& first = *layers.front();
  LayerGroup group;
  group.layers = static_cast<int>(layers.size());
  group.rows = first.layer().rows;
  group.cols = first.layer().cols;
  group.spec = first.layer().spec;
  group.attempt = first.attempt();
  if (group.attempt.use_moments) group.inputs = shared ? 1 : group.layers;
  for (int i = 0; i < group.layers; ++i) {
    LayerState& state = *layers[static_cast<size_t>(i)];
    if (group.inputs == 1) state.ShareOrder(first);
    state.AddTo(group, i);
  }
  return group;
}

// Enqueues the layers in slices that fit into the memory, at least one layer at a time.
absl::Status EnqueueGroup(const Candidates& candidates, Queue& queue) {
  std::span<LayerState* const> left = candidates.layers;
  while (!left.empty()) {
    size_t count = left.size();
    LayerGroup group = MakeGroup(left, candidates.shared);
    for (; count > 1; group = MakeGroup(left.first(count), candidates.shared)) {
      PTQWATCH_ASSIGN_OR_RETURN(const int64_t bytes, GroupBytes(group));
      if (bytes <= queue.arena().remaining()) break;
      count = (count + 1) / 2;
    }
    PTQWATCH_RETURN_IF_ERROR(RunGroup(group, queue));
    for (LayerState* state : left.first(count)) state->Enqueued();
    left = left.subspan(count);
  }
  return absl::OkStatus();
}

absl::Status EnqueuePending(std::vector<LayerState>& states, Queue& queue) {
  for (const Candidates& group : GroupLayers(states)) {
    PTQWATCH_RETURN_IF_ERROR(EnqueueGroup(group, queue));
  }
  return absl::OkStatus();
}

}  // namespace

struct DeviceQuantizer::Layers {
  std::vector<LayerState> states;
  double* numbers = nullptr;         // [layers, kNumberCount] on the device
  std::vector<double> host_numbers;  // copy on the host

  const double* Numbers(size_t i) const { return host_numbers.data() + i * kNumberCount; }
};

DeviceQuantizer::DeviceQuantizer(ComputeDevice& device)
    : device_(device), arena_begin_(device.arena().used()) {}

bool DeviceQuantizer::Supports(const QuantizerSpec& spec) {
  const DeviceMethod* method = FindDeviceMethod(MethodOf(spec));
  return method != nullptr && (method->supports == nullptr || method->supports(spec));
}

DeviceQuantizer::~DeviceQuantizer() { device_.arena().ReturnTo(arena_begin_); }

absl::StatusOr<int64_t> DeviceQuantizer::WorkingBytes(std::span<const DeviceLayer> layers) {
  Arena measure(nullptr, INT64_MAX);
  PTQWATCH_RETURN_IF_ERROR(
      measure.TakeArray<double>(static_cast<int64_t>(layers.size()) * kNumberCount, "numbers")
          .status());
  int64_t most = 0;
  for (const DeviceLayer& layer : layers) {
    PTQWATCH_RETURN_IF_ERROR(CheckLayer(layer));
    LayerState state(layer);
    PTQWATCH_RETURN_IF_ERROR(state.TakeResults(measure, nullptr));
    if (!state.pending()) continue;
    LayerState* one = &state;
    LayerGroup group = MakeGroup({&one, 1}, true);
    // Collect may ask for these precisions when it repeats the losses.
    for (const Precision precision :
         {group.attempt.loss, state.FirstPrecision(), Precision::kFloat64}) {
      if (group.inputs > 0) group.attempt.loss = precision;
      PTQWATCH_ASSIGN_OR_RETURN(const int64_t bytes, GroupBytes(group));
      most = std::max(most, bytes);
    }
  }
  return measure.used() + most;
}

absl::Status DeviceQuantizer::Begin(std::span<const DeviceLayer> layers,
                                    const ExecutionContext& context) {
  if (layers_ != nullptr) return absl::FailedPreconditionError("Begin was called before");
  auto begun = std::make_unique<Layers>();
  for (const DeviceLayer& layer : layers) {
    PTQWATCH_RETURN_IF_ERROR(CheckLayer(layer));
    begun->states.emplace_back(layer);
  }
  const int64_t count = static_cast<int64_t>(layers.size()) * kNumberCount;
  begun->host_numbers.resize(static_cast<size_t>(count));
  const auto enqueue = [&]() -> absl::Status {
    Arena& arena = device_.arena();
    PTQWATCH_ASSIGN_OR_RETURN(begun->numbers,
                              arena.TakeArray<double>(count, "measurements of weights"));
    PTQWATCH_RETURN_IF_ERROR(
        device_.Zero(begun->numbers, count * static_cast<int64_t>(sizeof(double))));
    for (size_t i = 0; i < begun->states.size(); ++i) {
      PTQWATCH_RETURN_IF_ERROR(begun->states[i].TakeResults(
          arena, begun->numbers + static_cast<int64_t>(i) * kNumberCount));
    }
    Queue queue(device_, context);
    return EnqueuePending(begun->states, queue);
  };
  if (const absl::Status status = enqueue(); !status.ok()) {
    device_.arena().ReturnTo(arena_begin_);
    return status;
  }
  layers_ = std::move(begun);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<DeviceResult>> DeviceQuantizer::Collect(
    const ExecutionContext& context) {
  if (layers_ == nullptr) return absl::FailedPreconditionError("Collect before Begin");
  std::vector<LayerState>& states = layers_->states;
  const HostCopy numbers{
      .host = layers_->host_numbers.data(),
      .from = layers_->numbers,
      .bytes = static_cast<int64_t>(layers_->host_numbers.size() * sizeof(double))};
  for (bool again = true; again;) {
    PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
    PTQWATCH_RETURN_IF_ERROR(device_.Read({&numbers, 1}));
    again = false;
    for (size_t i = 0; i < states.size(); ++i) {
      states[i].Judge(layers_->Numbers(i));
      again = again || states[i].pending();
    }
    Queue queue(device_, context);
    if (again) PTQWATCH_RETURN_IF_ERROR(EnqueuePending(states, queue));
  }

  std::vector<float> bad(states.size());
  std::vector<std::vector<float>> abs_max(states.size());
  std::vector<HostCopy> copies;
  for (size_t i = 0; i < states.size(); ++i) {
    const DeviceLayer& layer = states[i].layer();
    const int64_t at = states[i].BadWeight(layers_->Numbers(i));
    if (at >= 0) copies.push_back({.host = &bad[i], .from = layer.weight + at, .bytes = 4});
    if (states[i].NeedsAbsMax()) {
      abs_max[i].resize(static_cast<size_t>(layer.cols));
      copies.push_back({.host = abs_max[i].data(),
                        .from = layer.gram->moments().abs_max,
                        .bytes = 4 * layer.cols});
    }
  }
  if (!copies.empty()) PTQWATCH_RETURN_IF_ERROR(device_.Read(copies));
  std::vector<DeviceResult> results;
  for (size_t i = 0; i < states.size(); ++i) {
    results.push_back(states[i].Finish(layers_->Numbers(i), bad[i], abs_max[i]));
  }
  return results;
}

}  // namespace ptqwatch::internal
