#include "capture/watched_op.h"

#include <vector>

namespace ptqwatch::internal {
namespace {

constexpr std::string_view kAten = "aten::";

constexpr WatchedOp kOps[] = {
    {"linear", OpKind::kLinear},
    {"matmul", OpKind::kProduct},
    {"mm", OpKind::kProduct},
    {"mv", OpKind::kProduct},
    {"bmm", OpKind::kProduct},
    {"_grouped_mm", OpKind::kGrouped},
    {"addmm", OpKind::kProduct, 1, 2},
    {"addmm_", OpKind::kProduct, 1, 2},
    {"_addmm_activation", OpKind::kProduct, 1, 2},
    {"addmv", OpKind::kProduct, 1, 2},
    {"addmv_", OpKind::kProduct, 1, 2},
    {"baddbmm", OpKind::kProduct, 1, 2},
    {"baddbmm_", OpKind::kProduct, 1, 2},
    {"conv1d", OpKind::kConvolution},
    {"conv2d", OpKind::kConvolution},
    {"conv3d", OpKind::kConvolution},
    {"conv_transpose1d", OpKind::kTransposedConvolution},
    {"conv_transpose2d", OpKind::kTransposedConvolution},
    {"conv_transpose3d", OpKind::kTransposedConvolution},
    {"convolution", OpKind::kGeneralConvolution},
    {"_convolution", OpKind::kGeneralConvolution},
    {"bilinear", OpKind::kBilinear},
    {"mkldnn_rnn_layer", OpKind::kRecurrentLayer},
    {"embedding", OpKind::kLookUp},
    {"embedding_bag", OpKind::kLookUp},
    {"index", OpKind::kLookUp},
    {"index_select", OpKind::kLookUp},
    {"gather", OpKind::kLookUp},
    {"topk", OpKind::kChoice},
    {"to", OpKind::kCopy},
    {"contiguous", OpKind::kCopy},
    {"clone", OpKind::kCopy},
};

// One number per spatial dimension, from a list that may have a single number for all.
std::vector<int64_t> PerDimension(const c10::IValue& value, size_t dimensions) {
  std::vector<int64_t> list = value.toIntVector();
  if (list.size() == 1) list.resize(dimensions, list[0]);
  return list;
}

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

const WatchedOp* FindOp(std::string_view name) {
  if (name.substr(0, kAten.size()) != kAten) return nullptr;
  name.remove_prefix(kAten.size());
  for (const WatchedOp& op : kOps) {
    if (op.name == name) return &op;
  }
  return nullptr;
}

bool OnlyCopies(std::string_view name) { return name == "aten::copy_" || EndsWith(name, "_like"); }

bool WritesInPlace(std::string_view name) {
  return EndsWith(name, "_") && name.substr(name.rfind(':') + 1) != "detach_";
}

at::Tensor TensorAt(c10::ArrayRef<const c10::IValue> inputs, size_t i) {
  return i < inputs.size() && inputs[i].isTensor() ? inputs[i].toTensor() : at::Tensor();
}

at::Tensor PickedRows(std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  at::Tensor index;
  if (name == "index" && inputs[1].isList() && inputs[1].toListRef().size() == 1) {
    const c10::IValue& first = inputs[1].toListRef()[0];
    if (first.isTensor()) index = first.toTensor();
  } else if (name == "index_select" && inputs[1].toInt() == 0) {
    index = TensorAt(inputs, 2);
  }
  const bool numbers = index.defined() && index.dim() == 1 &&
                       (index.scalar_type() == at::kLong || index.scalar_type() == at::kInt);
  return numbers ? index : at::Tensor();
}

bool PicksRows(std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  if (name == "index") {
    return inputs[1].isList() && inputs[1].toListRef().size() > 0 &&
           inputs[1].toListRef()[0].isTensor();
  }
  return name != "index_select" || inputs[1].toInt() == 0;
}

int64_t GroupsOf(OpKind kind, c10::ArrayRef<const c10::IValue> inputs) {
  return inputs[kind == OpKind::kGeneralConvolution ? 8 : 6].toInt();
}

bool IsTransposed(OpKind kind, c10::ArrayRef<const c10::IValue> inputs) {
  return kind == OpKind::kTransposedConvolution ||
         (kind == OpKind::kGeneralConvolution && inputs[6].toBool());
}

InputForm WindowsOf(c10::ArrayRef<const c10::IValue> inputs, at::IntArrayRef kernel) {
  InputForm form{InputForm::Kind::kWindows};
  form.kernel = kernel.vec();
  form.stride = PerDimension(inputs[3], kernel.size());
  form.dilation = PerDimension(inputs[5], kernel.size());
  if (!inputs[4].isString()) {
    form.pad_before = form.pad_after = PerDimension(inputs[4], kernel.size());
    return form;
  }
  const bool same = inputs[4].toStringRef() == "same";
  for (size_t i = 0; i < kernel.size(); ++i) {
    // If the total padding is odd, the larger half is at the end.
    const int64_t padding = same ? form.dilation[i] * (form.kernel[i] - 1) : 0;
    form.pad_before.push_back(padding / 2);
    form.pad_after.push_back(padding - padding / 2);
  }
  return form;
}

}  // namespace ptqwatch::internal
