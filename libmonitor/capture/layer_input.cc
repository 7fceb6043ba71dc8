#include "capture/layer_input.h"

#include <algorithm>

#include "ATen/ops/constant_pad_nd.h"
#include "base/status_macros.h"

namespace ptqwatch::internal {
namespace {

// Enough rows to fill the Gram kernel's blocks. All windows at once would take too much memory.
constexpr int64_t kWindowRows = 4096;

at::Tensor OnHost(const at::Tensor& tensor) {
  return tensor.to(at::TensorOptions().dtype(at::kFloat).device(at::kCPU));
}

using Convert = absl::FunctionRef<at::Tensor(const at::Tensor&)>;
using Take = absl::FunctionRef<absl::Status(const at::Tensor&)>;

absl::Status Give(const at::Tensor& rows, Take take) {
  return take(rows.reshape({-1, rows.size(-1)}).contiguous());
}

// The number of positions of the kernel's window in `size` pixels, padding included.
int64_t Places(const InputForm& form, size_t dimension, int64_t size) {
  const int64_t reach = form.dilation[dimension] * (form.kernel[dimension] - 1);
  return (size - reach - 1) / form.stride[dimension] + 1;
}

// Images [N, C, spatial...] with their padding.
at::Tensor Padded(const at::Tensor& images, const InputForm& form) {
  std::vector<int64_t> padding;  // last dimension first
  for (size_t i = form.kernel.size(); i-- > 0;) {
    padding.insert(padding.end(), {form.pad_before[i], form.pad_after[i]});
  }
  const bool none = std::all_of(padding.begin(), padding.end(), [](int64_t n) { return n == 0; });
  return none ? images : at::constant_pad_nd(images, padding);
}

// A view [N, places..., C, kernel...] of padded images.
at::Tensor Windows(const at::Tensor& padded, const InputForm& form) {
  std::vector<int64_t> sizes = {padded.size(0)};
  std::vector<int64_t> strides = {padded.stride(0)};
  const auto add = [&](int64_t size, int64_t stride) {
    sizes.push_back(size);
    strides.push_back(stride);
  };
  for (size_t i = 0; i < form.kernel.size(); ++i) {
    const auto dim = static_cast<int64_t>(i) + 2;
    add(Places(form, i, padded.size(dim)), padded.stride(dim) * form.stride[i]);
  }
  add(padded.size(1), padded.stride(1));
  for (size_t i = 0; i < form.kernel.size(); ++i) {
    add(form.kernel[i], padded.stride(static_cast<int64_t>(i) + 2) * form.dilation[i]);
  }
  return padded.as_strided(sizes, strides);
}

absl::Status ForEachBlockOfWindows(const LayerInput& input, Convert convert, Take take) {
  const InputForm& form = input.form;
  const auto spatial = static_cast<int64_t>(form.kernel.size());
  const bool one = input.tensor.dim() == spatial + 1;
  const at::Tensor images = one ? input.tensor.unsqueeze(0) : input.tensor;
  const auto windows = [&](const at::Tensor& some) {
    return Windows(Padded(convert(some.detach()), form), form);
  };
  int64_t places = 1;
  for (size_t i = 0; i < form.kernel.size(); ++i) {
    const int64_t size = images.size(static_cast<int64_t>(i) + 2);
    places *= Places(form, i, form.pad_before[i] + size + form.pad_after[i]);
  }
  const int64_t step = std::max<int64_t>(1, kWindowRows / std::max<int64_t>(1, places));
  for (int64_t n = 0; n < images.size(0); n += step) {
    const at::Tensor some = images.narrow(0, n, std::min(step, images.size(0) - n));
    PTQWATCH_RETURN_IF_ERROR(Give(windows(some).flatten(spatial + 1), take));
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
