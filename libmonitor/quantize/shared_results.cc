#include "quantize/shared_results.h"

#include "base/status_macros.h"

namespace ptqwatch::internal {
namespace {

// Keeps only the fields of the spec that decide the grid.
QuantizerSpec GridOf(const QuantizerSpec& spec) {
  return {.method = QuantizationMethod::kRtn,
          .bits = spec.bits,
          .format = spec.format,
          .scale_rule = spec.scale_rule,
          .group_size = spec.group_size,
          .group_rows = spec.group_rows,
          .symmetric = spec.symmetric,
          .narrow_range = spec.narrow_range,
          .scale_dtype = spec.scale_dtype,
          .round_scale_last = spec.round_scale_last,
          .min_scale = spec.min_scale,
          .clip = spec.clip,
          .clip_value = spec.clip_value};
}

}  // namespace

absl::StatusOr<SharedResults::Loss> SharedResults::RtnLoss(const QuantizerSpec& spec,
                                                           bool live_only, Compute<Loss> compute) {
  const QuantizerSpec grid = GridOf(spec);
  for (Rounded& known : rounded_) {
    if (known.grid == grid && known.live_only == live_only) return known.loss;
  }
  PTQWATCH_ASSIGN_OR_RETURN(const Loss loss, compute());
  rounded_.push_back({.grid = grid, .live_only = live_only, .loss = loss});
  return loss;
}

absl::StatusOr<const FeedbackMatrix*> SharedResults::Feedback(QuantizationOrder order, double damp,
                                                              int64_t inputs,
                                                              Compute<FeedbackMatrix> compute,
                                                              const ExecutionContext& context) {
  if (feedback_ != nullptr && feedback_->order == order && feedback_->damp == damp) {
    return &*feedback_->matrix;
  }
  for (const Failure& known : failures_) {
    if (known.order == order && known.damp == damp) return known.status;
  }
  // Frees the old factor first, so that two never exist at once.
  feedback_ = nullptr;
  auto factor = std::unique_ptr<Factor>(
      new Factor{.order = order, .damp = damp, .matrix = {}, .bytes = Reservation(context.bytes)});
  PTQWATCH_RETURN_IF_ERROR(
      factor->bytes.Take(FeedbackMatrix::Bytes(inputs), "the factor of a layer's inputs"));
  absl::StatusOr<FeedbackMatrix> matrix = compute();
  if (absl::IsFailedPrecondition(matrix.status())) {
    failures_.push_back({.order = order, .damp = damp, .status = matrix.status()});
  }
  PTQWATCH_RETURN_IF_ERROR(matrix.status());
  factor->matrix = *std::move(matrix);
  feedback_ = std::move(factor);
  return &*feedback_->matrix;
}

}  // namespace ptqwatch::internal
