#include "snapshot/batches.h"

#include "base/guard.h"
#include "base/strings.h"

namespace ptqwatch::internal {

absl::StatusOr<std::vector<Batch>> CopyBatches(const std::vector<Batch>& batches, at::Device device,
                                               std::string_view what) {
  return Guard(StrCat("copying the ", what, " batches failed"),
               absl::StatusCode::kFailedPrecondition, [&]() -> absl::StatusOr<std::vector<Batch>> {
                 std::vector<Batch> copies;
                 for (const Batch& batch : batches) {
                   Batch& copy = copies.emplace_back();
                   for (const at::Tensor& tensor : batch) {
                     copy.push_back(tensor.defined()
                                        ? tensor.detach().to(tensor.options().device(device),
                                                             /*non_blocking=*/false, /*copy=*/true)
                                        : at::Tensor());
                   }
                 }
                 return copies;
               });
}

int64_t BytesOf(const std::vector<Batch>& batches) {
  int64_t bytes = 0;
  for (const Batch& batch : batches) {
    for (const at::Tensor& tensor : batch) {
      if (tensor.defined()) bytes += static_cast<int64_t>(tensor.nbytes());
    }
  }
  return bytes;
}

}  // namespace ptqwatch::internal
