#include "snapshot/finite.h"

#include <cmath>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/isfinite.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::internal {

namespace {

absl::Status Check(const TensorEntry& entry) {
  if (!at::isFloatingType(entry.tensor.scalar_type())) return absl::OkStatus();
  const int64_t finite = at::isfinite(entry.tensor).sum().item<int64_t>();
  if (finite == entry.tensor.numel()) return absl::OkStatus();
  return absl::DataLossError(
      StrCat("'", entry.name, "' has ", entry.tensor.numel() - finite, " non-finite values"));
}

}  // namespace

absl::Status CheckFinite(const TensorTable& table) {
  for (const TensorEntry& entry : table.entries) PTQWATCH_RETURN_IF_ERROR(Check(entry));
  return absl::OkStatus();
}

absl::Status CheckFinite(const TensorTable& table, absl::Span<const int> entries) {
  at::NoGradGuard no_grad;
  for (int index : entries) {
    const TensorEntry& entry = table.entries[static_cast<size_t>(index)];
    // A NaN or infinity shows in the sum, which may overflow without one.
    if (std::isfinite(entry.tensor.sum().item<double>())) continue;
    PTQWATCH_RETURN_IF_ERROR(Check(entry));
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
