#include "cuda/group_steps.h"

#include <algorithm>
#include <limits>

#include "base/status_macros.h"
#include "cuda/gptq_steps.h"
#include "cuda/rotate_steps.h"
#include "cuda/round_steps.h"
#include "cuda/trace_steps.h"

namespace ptqwatch::internal {
namespace {

struct Sizes {
  int64_t at[kMaxBatch] = {};
};

Sizes AllOf(int64_t size) {
  Sizes sizes;
  std::fill(sizes.at, sizes.at + kMaxBatch, size);
  return sizes;
}

// Finds the first number that is not finite in each of `layers` arrays.
template <typename T>
absl::Status FindBad(const LayerGroup& group, int layers, const PerLayer<const T>& values,
                     const Sizes& sizes, Number position, Queue& queue) {
  FindNonFinite<T> find{.layers = layers, .values = values, .partials = group.partials};
  std::copy(sizes.at, sizes.at + layers, find.sizes);
  find.parts = PartsOf(*std::max_element(sizes.at, sizes.at + layers));
  PTQWATCH_RETURN_IF_ERROR(queue.Run(find));
  Strided<const double> partials = Const(group.partials);
  if (layers < group.layers) partials.stride = 0;
  return queue.Run(Collapse{.layers = group.layers,
                            .fold = Fold::kSmallest,
                            .count = find.parts,
                            .values = partials,
                            .numbers = group.numbers,
                            .position = position});
}

absl::Status DescribeMoments(const LayerGroup& group, Queue& queue) {
  PTQWATCH_RETURN_IF_ERROR(queue.Run(DescribeInputs{.layers = group.layers,
                                                    .cols = group.cols,
                                                    .damp = group.attempt.damp,
                                                    .sum = group.sum,
                                                    .counts = group.counts,
                                                    .diagonal = group.diagonal,
                                                    .numbers = group.numbers}));
  if (!group.attempt.quantize) return absl::OkStatus();
  PTQWATCH_RETURN_IF_ERROR(
      FindBad(group, group.inputs, group.sum, AllOf(group.cols * group.cols), kBadMoment, queue));
  PTQWATCH_RETURN_IF_ERROR(queue.Run(FindDuplicates{
      .layers = group.inputs, .cols = group.cols, .sum = group.sum, .found = group.partials}));
  Strided<const double> found = Const(group.partials);
  if (group.inputs < group.layers) found.stride = 0;
  return queue.Run(Collapse{.layers = group.layers,
                            .count = group.cols,
                            .values = found,
                            .numbers = group.numbers,
                            .position = kDuplicateColumns});
}

Sizes Scales(const LayerGroup& group) {
  Sizes sizes;
  for (int i = 0; i < group.layers; ++i) {
    sizes.at[i] = ScaleCount(group.rows, group.cols, group.grids.at[i], *group.attempt.method);
  }
  return sizes;
}

// Whether FitGrids knows the rules for ranges and scales.
bool FitsRange(const QuantizerSpec& spec) {
  if (spec.round_scale_last) return false;
  return spec.clip == ClipSearch::kNone ||
         (spec.clip == ClipSearch::kMse && !spec.narrow_range && spec.min_scale == 0);
}

constexpr DeviceMethod kDeviceMethods[] = {
    {.method = &kRtnMethod, .quantize = RoundToGrids, .supports = FitsRange},
    {.method = &kGptqMethod,
     .quantize = QuantizeByGptq,
     .take = TakeGptqBuffers,
     .supports = FitsRange},
    {.method = &kAwqMethod,
     .quantize = QuantizeByAwq,
     .take = TakeAwqBuffers,
     .supports = [](const QuantizerSpec& spec) { return spec.clip == ClipSearch::kNone; }},
    {.method = &kLlmInt8Method, .quantize = RoundToInt8},
    {.method = &kNf4Method, .quantize = RoundToNf4},
};

// The sums that SetErrorParts in quantize/layer.h takes, for the grids and weights that were
// rounded.
absl::Status MeasureErrorParts(const LayerGroup& group, Queue& queue) {
  if (!group.spec.baselines || !group.AnyScale(GroupScale::kE8m0)) return absl::OkStatus();
  const SumErrorParts sum{
      .layers = group.layers,
      .source = group.attempt.method->factor ? group.LiveSource() : group.Source(),
      .grids = group.grids,
      .scale = Const(group.scale),
      .parts = PartsOf(group.size()),
      .partials = group.partials};
  PTQWATCH_RETURN_IF_ERROR(queue.Run(sum));
  for (int i = 0; i < SumErrorParts::kSums; ++i) {
    PTQWATCH_RETURN_IF_ERROR(
        queue.Run(Collapse{.layers = group.layers,
                           .count = sum.parts,
                           .spacing = SumErrorParts::kSums,
                           .values = {group.partials.first + i, group.partials.stride},
                           .numbers = group.numbers,
                           .position = kWeightSquares + i}));
  }
  return absl::OkStatus();
}

absl::Status MeasureDistance(const LayerGroup& group, Queue& queue) {
  const int64_t parts = PartsOf(group.size());
  PTQWATCH_RETURN_IF_ERROR(queue.Run(SquaredDistance{.layers = group.layers,
                                                     .size = group.size(),
                                                     .parts = parts,
                                                     .a = group.weight,
                                                     .b = Const(group.dequantized),
                                                     .partials = group.partials}));
  return queue.Run(Collapse{.layers = group.layers,
                            .count = parts,
                            .values = Const(group.partials),
                            .numbers = group.numbers,
                            .position = kSquaredError});
}

}  // namespace

const DeviceMethod* FindDeviceMethod(const Method& method) {
  for (const DeviceMethod& known : kDeviceMethods) {
    if (known.method == &method) return &known;
  }
  return nullptr;
}

absl::Status RunGroup(LayerGroup group, Queue& queue) {
  ArenaScope scope(queue.arena());
  PTQWATCH_RETURN_IF_ERROR(group.TakeShared(queue.arena()));
  const bool quantize = group.attempt.quantize;
  if (group.inputs > 0) PTQWATCH_RETURN_IF_ERROR(DescribeMoments(group, queue));
  if (quantize) {
    PTQWATCH_RETURN_IF_ERROR(
        FindBad(group, group.layers, group.weight, AllOf(group.size()), kBadWeight, queue));
  }
  const bool rotates = group.spec.rotation > 0;
  PTQWATCH_ASSIGN_OR_RETURN(const LayerGroup rotated, TakeRotated(group, queue.arena()));
  if (rotates) PTQWATCH_RETURN_IF_ERROR(Rotate(group, rotated, queue));
  if (quantize) {
    PTQWATCH_RETURN_IF_ERROR(FindDeviceMethod(*group.attempt.method)->quantize(rotated, queue));
    PTQWATCH_RETURN_IF_ERROR(
        FindBad(group, group.layers, Const(group.scale), Scales(group), kBadScale, queue));
    PTQWATCH_RETURN_IF_ERROR(MeasureErrorParts(rotated, queue));
    if (rotates) PTQWATCH_RETURN_IF_ERROR(RotateBack(rotated, group, queue));
    PTQWATCH_RETURN_IF_ERROR(MeasureDistance(group, queue));
  }
  return AddTraces(rotated, queue);
}

absl::StatusOr<int64_t> GroupBytes(LayerGroup group) {
  Arena measure(nullptr, std::numeric_limits<int64_t>::max());
  PTQWATCH_RETURN_IF_ERROR(group.TakeShared(measure));
  PTQWATCH_RETURN_IF_ERROR(TakeRotated(group, measure).status());
  const DeviceMethod& method = *FindDeviceMethod(*group.attempt.method);
  if (group.attempt.quantize && method.take != nullptr) {
    ArenaScope scope(measure);
    PTQWATCH_RETURN_IF_ERROR(method.take(group, measure));
  }
  {
    ArenaScope scope(measure);
    Strided<double> clipped;
    PTQWATCH_RETURN_IF_ERROR(TakeFitBuffers(group, measure, &clipped));
  }
  if (group.inputs > 0) {
    ArenaScope scope(measure);
    Tracer tracer(group);
    PTQWATCH_RETURN_IF_ERROR(tracer.Take(measure));
  }
  return measure.peak();
}

}  // namespace ptqwatch::internal
