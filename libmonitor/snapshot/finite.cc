#include "snapshot/finite.h"

#include "ATen/ops/isfinite.h"
#include "base/strings.h"

namespace ptqwatch::internal {

absl::Status CheckFinite(const TensorTable& table) {
  for (const TensorEntry& entry : table.entries) {
    if (!at::isFloatingType(entry.tensor.scalar_type())) continue;
    const int64_t finite = at::isfinite(entry.tensor).sum().item<int64_t>();
    if (finite != entry.tensor.numel()) {
      return absl::DataLossError(
          StrCat("'", entry.name, "' has ", entry.tensor.numel() - finite, " non-finite values"));
    }
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
