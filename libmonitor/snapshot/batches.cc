#include "snapshot/batches.h"

#include "base/strings.h"

namespace ptqwatch::internal {

absl::StatusOr<std::vector<Batch>> CopyBatches(const std::vector<Batch>& batches, at::Device device,
                                               std::string_view what) {
  std::vector<Batch> copies;
  try {
    for (const Batch& batch : batches) {
      Batch& copy = copies.emplace_back();
      for (const at::Tensor& tensor : batch) {
        copy.push_back(tensor.defined() ? tensor.detach().to(tensor.options().device(device),
                                                             /*non_blocking=*/false, /*copy=*/true)
                                        : at::Tensor());
      }
    }
  } catch (const c10::Error& error) {
    return absl::FailedPreconditionError(
        StrCat("copying the ", what, " batches failed: ", error.what_without_backtrace()));
  }
  return copies;
}

}  // namespace ptqwatch::internal
