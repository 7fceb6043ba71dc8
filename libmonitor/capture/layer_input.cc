#include "capture/layer_input.h"

#include <algorithm>

#include "ATen/ops/constant_pad_nd.h"
#include "ATen/ops/im2col.h"
#include "base/status_macros.h"

namespace ptqwatch::internal {
namespace {

// Enough rows to fill the blocks of the Gram kernel. All windows at once would take the memory of
// the images times the size of the kernel.
constexpr int64_t kWindowRows = 4096;

at::Tensor OnHost(const at::Tensor& tensor) {
  return tensor.to(at::TensorOptions().dtype(at::kFloat).device(at::kCPU));
}

using Convert = absl::FunctionRef<at::Tensor(const at::Tensor&)>;
using Take = absl::FunctionRef<absl::Status(const at::Tensor&)>;

absl::Status Give(const at::Tensor& rows, Take take) {
  return take(rows.reshape({-1, rows.size(-1)}).contiguous());
}

absl::Status ForEachBlockOfWindows(const LayerInput& input, Convert convert, Take take) {
  InputForm form = input.form;
  at::Tensor images = input.tensor;
  const auto spatial = static_cast<int64_t>(form.kernel.size());
  if (images.dim() == spatial + 1) images = images.unsqueeze(0);
  if (spatial == 1) {
    images = images.unsqueeze(2);
    for (auto* list : {&form.pad_before, &form.pad_after}) list->insert(list->begin(), 0);
    for (auto* list : {&form.kernel, &form.stride, &form.dilation}) list->insert(list->begin(), 1);
  }
  const auto windows = [&](const at::Tensor& some) {
    at::Tensor padded = convert(some.detach());
    if (form.pad_before != form.pad_after) {
      padded = at::constant_pad_nd(
          padded, {form.pad_before[1], form.pad_after[1], form.pad_before[0], form.pad_after[0]});
    }
    const std::vector<int64_t> none = {0, 0};
    return at::im2col(padded, form.kernel, form.dilation,
                      form.pad_before == form.pad_after ? form.pad_before : none, form.stride)
        .transpose(1, 2);  // [N, places, C * kernel]
  };
  int64_t places = 1;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t size =
        images.size(static_cast<int64_t>(i) + 2) + form.pad_before[i] + form.pad_after[i];
    places *= (size - form.dilation[i] * (form.kernel[i] - 1) - 1) / form.stride[i] + 1;
  }
  const int64_t step = std::max<int64_t>(1, kWindowRows / std::max<int64_t>(1, places));
  for (int64_t n = 0; n < images.size(0); n += step) {
    const at::Tensor some = images.narrow(0, n, std::min(step, images.size(0) - n));
    PTQWATCH_RETURN_IF_ERROR(Give(windows(some), take));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ForEachBlockOfRows(const LayerInput& input, Convert convert, Take take) {
  switch (input.form.kind) {
    case InputForm::Kind::kRows:
      return Give(convert(input.tensor.detach()), take);
    case InputForm::Kind::kColumns:
      return Give(convert(input.tensor.detach()).transpose(-1, -2), take);
    case InputForm::Kind::kWindows:
      break;
  }
  return ForEachBlockOfWindows(input, convert, take);
}

absl::Status ForEachBlockOfRows(const LayerInput& input,
                                absl::FunctionRef<absl::Status(MatrixView)> take) {
  return ForEachBlockOfRows(input, OnHost, [take](const at::Tensor& rows) {
    return take({rows.const_data_ptr<float>(), rows.size(0), rows.size(1)});
  });
}

InputIdentity::InputIdentity(const LayerInput& input)
    : storage_(input.tensor.storage().getWeakStorageImpl()),
      offset_(input.tensor.storage_offset()),
      sizes_(input.tensor.sizes().vec()),
      strides_(input.tensor.strides().vec()),
      dtype_(input.tensor.scalar_type()),
      versioned_(!input.tensor.is_inference()),
      version_(versioned_ ? input.tensor._version() : 0),
      form_(input.form) {}

bool InputIdentity::operator==(const InputIdentity& other) const {
  return versioned_ && other.versioned_ && storage_ == other.storage_ && offset_ == other.offset_ &&
         sizes_ == other.sizes_ && strides_ == other.strides_ && dtype_ == other.dtype_ &&
         version_ == other.version_ && form_ == other.form_;
}

}  // namespace ptqwatch::internal
