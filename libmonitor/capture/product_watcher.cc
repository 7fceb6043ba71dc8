// Compiled with NDEBUG: the layout of at::RecordFunction depends on it and must match LibTorch's.
#include "capture/product_watcher.h"

#include <cstring>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include "ATen/ops/mm.h"
#include "ATen/ops/zeros.h"
#include "ATen/record_function.h"
#include "base/guard.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

constexpr char kRewritten[] = "a copy of it that was changed is multiplied";
constexpr char kPart[] = "only a part or a reshaped form of it is multiplied";

enum class OpKind { kProduct, kConvolution, kLookUp, kCopy };

struct Op {
  const char* name;
  OpKind kind;
  size_t left = 0;  // operands of a product
  size_t right = 1;
};

constexpr Op kOps[] = {
    {"linear", OpKind::kProduct},
    {"matmul", OpKind::kProduct},
    {"mm", OpKind::kProduct},
    {"mv", OpKind::kProduct},
    {"bmm", OpKind::kProduct},
    {"addmm", OpKind::kProduct, 1, 2},
    {"addmv", OpKind::kProduct, 1, 2},
    {"baddbmm", OpKind::kProduct, 1, 2},
    {"conv1d", OpKind::kConvolution},
    {"conv2d", OpKind::kConvolution},
    {"conv3d", OpKind::kConvolution},
    {"conv_transpose1d", OpKind::kConvolution},
    {"conv_transpose2d", OpKind::kConvolution},
    {"conv_transpose3d", OpKind::kConvolution},
    {"convolution", OpKind::kConvolution},
    {"embedding", OpKind::kLookUp},
    {"embedding_bag", OpKind::kLookUp},
    {"index", OpKind::kLookUp},
    {"index_select", OpKind::kLookUp},
    {"gather", OpKind::kLookUp},
    {"to", OpKind::kCopy},
    {"contiguous", OpKind::kCopy},
    {"clone", OpKind::kCopy},
};

const Op* FindOp(const char* name) {
  for (const Op& op : kOps) {
    if (std::strcmp(op.name, name) == 0) return &op;
  }
  return nullptr;
}

at::Tensor TensorAt(c10::ArrayRef<const c10::IValue> inputs, size_t i) {
  return i < inputs.size() && inputs[i].isTensor() ? inputs[i].toTensor() : at::Tensor();
}

// One number per spatial dimension, from a list that may have a single one for all.
std::vector<int64_t> PerDimension(const c10::IValue& value, size_t dimensions) {
  std::vector<int64_t> list = value.toIntVector();
  if (list.size() == 1) list.resize(dimensions, list[0]);
  return list;
}

// A batch of one matrix, or of one matrix expanded.
at::Tensor WithoutBatch(const at::Tensor& factor) {
  const bool one = factor.dim() == 3 && (factor.size(0) == 1 || factor.stride(0) == 0);
  return one ? factor.select(0, 0) : factor;
}

}  // namespace

struct ProductWatcher::Inside : at::ObserverContext {
  bool product = false;               // counted in depth_
  std::optional<FoundWeight> copied;  // what the output may be a copy of
};

thread_local ProductWatcher* ProductWatcher::current_ = nullptr;

ProductWatcher::ProductWatcher(const TensorTable& table, Handler handler)
    : handler_(std::move(handler)), weights_(table) {
  current_ = this;
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&ProductWatcher::OnStart, &ProductWatcher::OnEnd)
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({at::RecordScope::FUNCTION}));
}

ProductWatcher::~ProductWatcher() {
  at::removeCallback(handle_);
  current_ = nullptr;
}

void ProductWatcher::Fail(std::string problem) {
  if (problem_.empty()) problem_ = std::move(problem);
}

std::unique_ptr<at::ObserverContext> ProductWatcher::OnStart(const at::RecordFunction& record) {
  ProductWatcher* self = current_;
  if (self == nullptr || std::strncmp(record.name(), "aten::", 6) != 0) return nullptr;
  ++self->records_;
  const Op* op = FindOp(record.name() + 6);
  if (op == nullptr) return nullptr;
  // Conversions made here are not products of the model.
  at::DisableRecordFunctionGuard quiet;
  auto inside = std::make_unique<Inside>();
  inside->product = op->kind == OpKind::kProduct || op->kind == OpKind::kConvolution;
  if (inside->product && self->depth_++ > 0) return inside;
  try {
    const c10::ArrayRef<const c10::IValue> inputs = record.inputs();
    switch (op->kind) {
      case OpKind::kProduct: {
        at::Tensor right = TensorAt(inputs, op->right);
        const bool linear = std::strcmp(op->name, "linear") == 0;
        if (linear && right.defined() && right.dim() == 2) right = right.t();
        self->OnMatrixProduct(TensorAt(inputs, op->left), right);
        break;
      }
      case OpKind::kConvolution:
        self->OnConvolution(op->name, inputs);
        break;
      case OpKind::kLookUp:
        self->NoteLookUp(TensorAt(inputs, 0));
        break;
      case OpKind::kCopy:
        inside->copied = self->weights_.Find(TensorAt(inputs, 0));
        break;
    }
  } catch (const std::exception& error) {
    self->Fail(ErrorText(error));
  }
  return inside;
}

void ProductWatcher::OnEnd(const at::RecordFunction& record, at::ObserverContext* context) {
  ProductWatcher* self = current_;
  if (context == nullptr || self == nullptr) return;
  const auto* inside = static_cast<const Inside*>(context);
  if (inside->product) --self->depth_;
  if (!inside->copied) return;
  try {
    const std::vector<c10::IValue>& outputs = record.outputs();
    if (!outputs.empty() && outputs[0].isTensor()) {
      self->weights_.NoteCopy(*inside->copied, outputs[0].toTensor());
    }
  } catch (const std::exception& error) {
    self->Fail(ErrorText(error));
  }
}

void ProductWatcher::NoteLookUp(const at::Tensor& table) {
  if (const auto found = weights_.Find(table)) uncovered_.emplace(found->entry, "embedding");
}

void ProductWatcher::OnMatrixProduct(const at::Tensor& left, const at::Tensor& right) {
  if (!left.defined() || !right.defined()) return;
  const at::Tensor a = WithoutBatch(left);
  const at::Tensor b = WithoutBatch(right);
  const auto weight_a = weights_.Find(a);
  const auto weight_b = weights_.Find(b);
  if (weight_a && weight_b) {
    // A factorised weight: neither factor sees activations.
    for (const auto& weight : {weight_a, weight_b}) {
      uncovered_.emplace(weight->entry, "multiplied with another parameter");
    }
  } else if (weight_b) {
    TakeMatrix(*weight_b, left, InputForm::Kind::kRows);
  } else if (weight_a) {
    FoundWeight turned = *weight_a;
    if (turned.view.defined() && turned.view.dim() == 2) turned.view = turned.view.t();
    const bool vector = right.dim() == 1;
    TakeMatrix(turned, right, vector ? InputForm::Kind::kRows : InputForm::Kind::kColumns);
  }
}

// `weight.view` [d, m] is the right factor.
void ProductWatcher::TakeMatrix(const FoundWeight& weight, const at::Tensor& input,
                                InputForm::Kind form) {
  const at::Tensor& stored = weights_.parameter(weight.entry);
  if (stored.dim() < 2) return;
  if (weight.rewritten) {
    uncovered_.emplace(weight.entry, kRewritten);
    return;
  }
  const at::Tensor& factor = weight.view;
  if (!factor.defined() || factor.dim() != 2 || (stored.dim() > 2 && !stored.is_contiguous())) {
    uncovered_.emplace(weight.entry, kPart);
    return;
  }
  if (factor.numel() != stored.numel()) return TakePart(weight.entry, factor, {input, {form}});
  // With more than two dimensions it counts as the matrix it is in memory.
  const bool matrix = stored.dim() == 2;
  const at::Tensor as_inputs_outputs = matrix ? stored : stored.view(factor.sizes());
  const at::Tensor as_outputs_inputs =
      matrix ? stored.t() : stored.view({factor.size(1), factor.size(0)}).t();
  const Layout layout = Layout::Of(factor);
  const bool transposed = layout == Layout::Of(as_inputs_outputs);
  // A 1 x 1 weight is both, and so is a vector.
  const bool plain = layout == Layout::Of(as_outputs_inputs);
  if (!transposed && !plain) {
    uncovered_.emplace(weight.entry, kPart);
    return;
  }
  handler_({.entry = weight.entry,
            .outputs = factor.size(1),
            .inputs = factor.size(0),
            .transposed = !plain,
            .input = {input, {form}}});
}

// `factor` [d, m] has some of the elements of the parameter.
void ProductWatcher::TakePart(int entry, const at::Tensor& factor, LayerInput input) {
  const at::Tensor& stored = weights_.parameter(entry);
  const Layout layout = Layout::Of(factor);
  const at::Tensor run =
      stored.is_contiguous() ? stored.view({-1}).narrow(0, 0, factor.numel()) : at::Tensor();
  const bool transposed =
      run.defined() && layout == Layout::Of(run.view({factor.size(0), factor.size(1)}));
  const bool plain =
      run.defined() && layout == Layout::Of(run.view({factor.size(1), factor.size(0)}).t());
  if (!transposed && !plain) {
    uncovered_.emplace(entry, kPart);
    return;
  }
  const auto bytes = static_cast<const char*>(factor.const_data_ptr()) -
                     static_cast<const char*>(stored.const_data_ptr());
  handler_({.entry = entry,
            .part = true,
            .first = bytes / static_cast<int64_t>(stored.element_size()),
            .outputs = factor.size(1),
            .inputs = factor.size(0),
            .transposed = !plain,
            .input = std::move(input)});
}

void ProductWatcher::OnConvolution(const char* name, c10::ArrayRef<const c10::IValue> inputs) {
  const at::Tensor images = TensorAt(inputs, 0);
  const at::Tensor kernel = TensorAt(inputs, 1);
  const auto weight = weights_.Find(kernel);
  if (!weight) return;
  const at::Tensor& stored = weights_.parameter(weight->entry);
  const auto leave_out = [&](std::string reason) {
    uncovered_.emplace(weight->entry, std::move(reason));
  };
  const bool general = std::strcmp(name, "convolution") == 0;
  if (std::strncmp(name, "conv_transpose", 14) == 0 || (general && inputs[6].toBool())) {
    return leave_out("a transposed convolution");
  }
  if (weight->rewritten) return leave_out(kRewritten);
  const int64_t spatial = stored.dim() - 2;
  if (!weight->view.defined() || weight->view.const_data_ptr() != stored.const_data_ptr() ||
      Layout::Of(weight->view) != Layout::Of(stored) || kernel.dim() != stored.dim()) {
    return leave_out(kPart);
  }
  if (spatial < 1 || spatial > 2) {
    return leave_out(StrCat("a convolution over ", spatial, " dimensions"));
  }
  const int64_t groups = inputs[general ? 8 : 6].toInt();
  if (groups != 1) return leave_out(StrCat("a convolution in ", groups, " groups"));

  const auto dimensions = static_cast<size_t>(spatial);
  InputForm form{InputForm::Kind::kWindows};
  form.kernel = stored.sizes().slice(2).vec();
  form.stride = PerDimension(inputs[3], dimensions);
  form.dilation = PerDimension(inputs[5], dimensions);
  if (!inputs[4].isString()) {
    form.pad_before = form.pad_after = PerDimension(inputs[4], dimensions);
  } else {
    const bool same = inputs[4].toStringRef() == "same";
    for (size_t i = 0; i < dimensions; ++i) {
      // If the total padding is odd, the larger half is at the end.
      const int64_t padding = same ? form.dilation[i] * (form.kernel[i] - 1) : 0;
      form.pad_before.push_back(padding / 2);
      form.pad_after.push_back(padding - padding / 2);
    }
  }
  handler_({.entry = weight->entry,
            .outputs = stored.size(0),
            .inputs = stored.numel() / stored.size(0),
            .input = {images, std::move(form)}});
}

absl::Status ProductWatcher::SelfCheck() {
  TensorTable table;
  table.entries.push_back({"w", {}, true, at::zeros({2, 3})});
  const at::Tensor x = at::zeros({4, 2});
  int products = 0;
  bool right = false;
  ProductWatcher watcher(table, [&](const Product& product) {
    ++products;
    right = product.transposed && product.input.tensor.const_data_ptr() == x.const_data_ptr();
  });
  at::mm(x, table.entries[0].tensor);
  if (products == 1 && right && watcher.problem().empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("activation capture does not work with this LibTorch: a matrix product gave ",
             products, " records. ", watcher.problem(),
             watcher.records_ == 0 ? "RecordFunction callbacks do not fire." : ""));
}

}  // namespace ptqwatch::internal
