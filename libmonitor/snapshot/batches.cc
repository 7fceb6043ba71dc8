#include "snapshot/batches.h"

#include "base/guard.h"
#include "base/strings.h"
#include "snapshot/tensor_table.h"

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

std::string DescribeBatch(const Batch& batch) {
  std::string text;
  for (const at::Tensor& tensor : batch) {
    if (!text.empty()) text += ", ";
    text += tensor.defined() ? StrCat(at::toString(tensor.scalar_type()), " ", ShapeText(tensor))
                             : "undefined";
  }
  return text.empty() ? "no tensors" : text;
}

absl::Status OfBatch(std::string_view what, size_t index, const absl::Status& status) {
  return absl::Status(status.code(), StrCat(what, " batch ", index, ": ", status));
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
