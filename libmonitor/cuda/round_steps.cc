#include "cuda/round_steps.h"

#include <algorithm>

#include "base/status_macros.h"

namespace ptqwatch::internal {
namespace {

// The number of weights whose grids are searched at a time.
constexpr int64_t kMostFitted = int64_t{1} << 23;

int64_t RowsPerFit(const LayerGroup& group) {
  constexpr int64_t kMultiple = FitClipped::kGroups;
  return std::max(kMultiple, kMostFitted / (group.cols * group.layers) / kMultiple * kMultiple);
}

Nf4Table MakeNf4Table() {
  Nf4Table table;
  const auto& levels = Nf4Levels();
  for (size_t i = 0; i < 16; ++i) table.level[i] = levels[i];
  for (size_t i = 0; i < 15; ++i) {
    table.midpoint[i] = static_cast<float>(
        (static_cast<double>(levels[i]) + static_cast<double>(levels[i + 1])) / 2);
  }
  return table;
}

RoundInt8 Int8Kernel(const LayerGroup& group) {
  return {.layers = group.layers,
          .source = group.Source(),
          .scale_dtype = group.spec.scale_dtype,
          .scale = group.scale,
          .zero = group.zero};
}

RoundGroups GroupsKernel(const LayerGroup& group, const GridSource& source) {
  return {.layers = group.layers,
          .source = source,
          .grids = group.grids,
          .scale = Const(group.scale),
          .zero = Const(group.zero)};
}

absl::Status FindLargestWeights(const LayerGroup& group, const GridSource& source, Queue& queue) {
  const FindLargest find{.layers = group.layers,
                         .source = source,
                         .parts = std::min(group.rows, PartsOf(group.size())),
                         .partials = group.partials};
  PTQWATCH_RETURN_IF_ERROR(queue.Run(find));
  return queue.Run(Collapse{.layers = group.layers,
                            .fold = Fold::kLargest,
                            .count = find.parts,
                            .values = Const(group.partials),
                            .numbers = group.numbers,
                            .position = kLargestWeight});
}

}  // namespace

absl::Status TakeFitBuffers(const LayerGroup& group, Arena& arena, Strided<double>* clipped) {
  if (group.spec.clip == ClipSearch::kNone) return absl::OkStatus();
  return TakeStrided(arena, group.layers, FitClipped::Parts(group.rows, group.MostGroups()),
                     clipped);
}

absl::Status FitGrids(const LayerGroup& group, const GridSource& source, Queue& queue) {
  if (group.AnyScale(GroupScale::kE4m3)) {
    PTQWATCH_RETURN_IF_ERROR(FindLargestWeights(group, source, queue));
  }
  if (group.spec.clip == ClipSearch::kNone) {
    PTQWATCH_RETURN_IF_ERROR(queue.Run(FitGroups{.layers = group.layers,
                                                 .source = source,
                                                 .grids = group.grids,
                                                 .most_groups = group.MostGroups(),
                                                 .numbers = Const(group.numbers),
                                                 .scale = group.scale,
                                                 .zero = group.zero}));
    FitBlocks blocks{.layers = group.layers,
                     .rows = group.rows,
                     .grids = group.grids,
                     .scale = group.scale,
                     .zero = group.zero};
    for (int i = 0; i < group.layers; ++i) {
      blocks.most_items =
          std::max(blocks.most_items, FitBlocks::Items(group.rows, group.grids.at[i]));
    }
    return blocks.most_items > 0 ? queue.Run(blocks) : absl::OkStatus();
  }
  ArenaScope scope(queue.arena());
  FitClipped fit{.layers = group.layers,
                 .source = source,
                 .grids = group.grids,
                 .most_groups = group.MostGroups(),
                 .numbers = Const(group.numbers),
                 .scale = group.scale,
                 .zero = group.zero};
  if (group.inputs > 0) fit.importance = Const(group.diagonal);
  PTQWATCH_RETURN_IF_ERROR(TakeFitBuffers(group, queue.arena(), &fit.clipped));
  for (; fit.first_row < group.rows; fit.first_row += fit.row_count) {
    fit.row_count = std::min(RowsPerFit(group), group.rows - fit.first_row);
    PTQWATCH_RETURN_IF_ERROR(queue.Run(fit));
  }
  return queue.Run(Collapse{.layers = group.layers,
                            .count = FitClipped::Parts(group.rows, group.MostGroups()),
                            .values = Const(fit.clipped),
                            .numbers = group.numbers,
                            .position = kClippedGroups});
}

absl::Status RoundToNf4(const LayerGroup& group, Queue& queue) {
  return queue.Run(RoundNf4{.layers = group.layers,
                            .source = group.Source(),
                            .scale_dtype = group.spec.scale_dtype,
                            .table = MakeNf4Table(),
                            .absmax = group.scale,
                            .codes = group.codes,
                            .decoded = group.dequantized});
}

absl::Status RoundToInt8(const LayerGroup& group, Queue& queue) {
  RoundInt8 round = Int8Kernel(group);
  if (group.spec.outlier_threshold > 0) round.abs_max = group.abs_max;
  round.threshold = group.spec.outlier_threshold;
  round.codes = group.codes;
  round.decoded = group.dequantized;
  return queue.Run(round);
}

absl::Status RoundToGrids(const LayerGroup& group, Queue& queue) {
  PTQWATCH_RETURN_IF_ERROR(FitGrids(group, group.Source(), queue));
  RoundGroups round = GroupsKernel(group, group.Source());
  round.codes = group.codes;
  round.decoded = group.dequantized;
  return queue.Run(round);
}

absl::Status RoundingError(const LayerGroup& group, const Strided<float>& error, Queue& queue) {
  if (!group.attempt.method->grid) {
    RoundInt8 round = Int8Kernel(group);
    round.error = error;
    return queue.Run(round);
  }
  RoundGroups round = GroupsKernel(group, group.LiveSource());
  round.error = error;
  return queue.Run(round);
}

}  // namespace ptqwatch::internal
