#include "quantize/fit_grid.h"

#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"
#include "quantize/kernels/clip_search.h"

namespace ptqwatch::internal {

absl::StatusOr<bool> FitGrid(const Layer& layer, MatrixView weight, Grid* grid,
                             int64_t* clipped_groups, const ExecutionContext& context) {
  if (layer.spec.clip == ClipSearch::kMse) {
    std::vector<double> importance(static_cast<size_t>(weight.cols), 1.0);
    for (int64_t c = 0; layer.h && c < weight.cols; ++c) {
      importance[static_cast<size_t>(c)] = layer.h->Diagonal(c);
    }
    PTQWATCH_ASSIGN_OR_RETURN(const ClipResult clipped,
                              FitClippedByImportance(weight, importance.data(), grid, context));
    *clipped_groups += clipped.groups;
    return clipped.fits;
  }
  bool fits = true;
  PTQWATCH_RETURN_IF_ERROR(ForEachRow(
      weight.rows, weight.cols,
      [&](int64_t r) { fits = FitRow(weight.data + r * weight.cols, r, grid) && fits; }, context));
  return fits;
}

QuantizedWeight TooLargeForGrid(const QuantizerSpec& spec) {
  return WithStatus(LayerStatus::kUnsupported, StrCat("a weight is too large for a grid with ",
                                                      ToString(spec.scale_dtype), " scales"));
}

}  // namespace ptqwatch::internal
