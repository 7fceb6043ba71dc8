#include "base/status_macros.h"
#include "cuda/round_steps.h"
#include "cuda/trace_steps.h"

namespace ptqwatch::internal {
namespace {

// Fits the grids of W * channel scale and rounds to them. The caller sets the outputs in `round`.
absl::Status RoundScaled(const LayerGroup& group, const Strided<const float>& channel_scale,
                         RoundGroups round, Queue& queue) {
  round.layers = group.layers;
  round.grids = group.grids;
  round.source = group.Source();
  round.source.channel_scale = channel_scale;
  round.scale = Const(group.scale);
  round.zero = Const(group.zero);
  PTQWATCH_RETURN_IF_ERROR(queue.Run(FitGroups{.layers = group.layers,
                                               .source = round.source,
                                               .grids = group.grids,
                                               .most_groups = group.MostGroups(),
                                               .scale = group.scale,
                                               .zero = group.zero}));
  return queue.Run(round);
}

}  // namespace

absl::Status TakeAwqBuffers(const LayerGroup& group, Arena& arena) {
  Strided<double> exact;
  Strided<float> scale;
  PTQWATCH_RETURN_IF_ERROR(TakeStrided(arena, group.layers, group.cols, &exact));
  PTQWATCH_RETURN_IF_ERROR(TakeStrided(arena, group.layers, group.cols, &scale));
  return Tracer(group).Take(arena);
}

absl::Status QuantizeByAwq(const LayerGroup& group, Queue& queue) {
  ArenaScope scope(queue.arena());
  ChannelScales scales{.layers = group.layers,
                       .cols = group.cols,
                       .abs_sum = group.abs_sum,
                       .counts = group.counts,
                       .numbers = Const(group.numbers)};
  PTQWATCH_RETURN_IF_ERROR(TakeStrided(queue.arena(), group.layers, group.cols, &scales.exact));
  PTQWATCH_RETURN_IF_ERROR(TakeStrided(queue.arena(), group.layers, group.cols, &scales.scale));
  {
    ArenaScope search(queue.arena());
    Tracer tracer(group);
    PTQWATCH_RETURN_IF_ERROR(tracer.Take(queue.arena()));
    PTQWATCH_RETURN_IF_ERROR(tracer.Prepare(queue));
    RoundGroups round;
    round.error = tracer.x();
    for (scales.ratio = 0; scales.ratio < kAwqRatios; ++scales.ratio) {
      PTQWATCH_RETURN_IF_ERROR(queue.Run(scales));
      PTQWATCH_RETURN_IF_ERROR(RoundScaled(group, Const(scales.scale), round, queue));
      PTQWATCH_RETURN_IF_ERROR(
          tracer.Run(queue, group.attempt.loss, kSearchLosses + 2 * scales.ratio));
    }
  }
  PTQWATCH_RETURN_IF_ERROR(queue.Run(PickRatio{.layers = group.layers, .numbers = group.numbers}));
  scales.ratio = -1;
  scales.kept = group.channel_scale;
  PTQWATCH_RETURN_IF_ERROR(queue.Run(scales));
  RoundGroups round;
  round.codes = group.codes;
  round.decoded = group.dequantized;
  return RoundScaled(group, Const(scales.scale), round, queue);
}

}  // namespace ptqwatch::internal
