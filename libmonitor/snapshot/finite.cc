#include "snapshot/finite.h"

#include <cmath>

#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/isfinite.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "snapshot/batches.h"

namespace ptqwatch::internal {

absl::Status CheckFinite(std::string_view name, const at::Tensor& tensor) {
  if (!at::isFloatingType(tensor.scalar_type())) return absl::OkStatus();
  at::NoGradGuard no_grad;
  // A NaN or infinity makes the sum non-finite. Overflow can too, hence the closer check.
  if (std::isfinite(tensor.sum().item<double>())) return absl::OkStatus();
  const int64_t finite = at::isfinite(tensor).sum().item<int64_t>();
  if (finite == tensor.numel()) return absl::OkStatus();
  return absl::DataLossError(
      StrCat("'", name, "' has ", tensor.numel() - finite, " non-finite values"));
}

absl::Status CheckFinite(const TensorTable& table) {
  for (const TensorEntry& entry : table.entries) {
    PTQWATCH_RETURN_IF_ERROR(CheckFinite(entry.name, entry.tensor));
  }
  return absl::OkStatus();
}

absl::Status CheckFinite(const TensorTable& table, absl::Span<const int> entries) {
  for (int index : entries) {
    const TensorEntry& entry = table.entries[static_cast<size_t>(index)];
    PTQWATCH_RETURN_IF_ERROR(CheckFinite(entry.name, entry.tensor));
  }
  return absl::OkStatus();
}

absl::Status CheckFiniteLosses(const LossValues& losses, const Batch& batch,
                               const TensorTable& weights) {
  at::NoGradGuard no_grad;
  const at::Tensor& values = losses.values;
  if (!at::isFloatingType(values.scalar_type())) return absl::OkStatus();  // SumByUnit refuses it
  at::Tensor sound = at::isfinite(values);
  const bool masked = losses.weights.defined() && losses.weights.sizes() == values.sizes();
  if (masked) {
    const at::Tensor usable = at::isfinite(losses.weights).logical_and(losses.weights >= 0);
    if (const int64_t bad = values.numel() - usable.sum().item<int64_t>(); bad > 0) {
      return absl::FailedPreconditionError(
          StrCat("losses returned LossValues::weights of which ", bad, " of ", values.numel(),
                 " are negative, NaN or infinite; the batch was ", DescribeBatch(batch)));
    }
    sound = sound.logical_or(losses.weights == 0);
  }
  const int64_t not_finite = values.numel() - sound.sum().item<int64_t>();
  if (not_finite == 0) return absl::OkStatus();
  const absl::Status weights_finite = CheckFinite(weights);
  return absl::FailedPreconditionError(
      StrCat("the losses are not finite: ", not_finite, " of ", values.numel(),
             " values are NaN or infinite",
             weights_finite.ok() ? "" : StrCat(", as is a weight: ", weights_finite),
             "; the batch was ", DescribeBatch(batch)));
}

}  // namespace ptqwatch::internal
