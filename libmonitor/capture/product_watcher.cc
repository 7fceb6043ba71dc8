// Compiled with NDEBUG: the layout of at::RecordFunction depends on it and must match LibTorch's.
#include "capture/product_watcher.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include "ATen/ops/index_select.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/zeros.h"
#include "ATen/record_function.h"
#include "base/guard.h"
#include "base/strings.h"
#include "capture/watched_op.h"

namespace ptqwatch::internal {
namespace {

constexpr char kRewritten[] = "a copy of it that was changed is used";
constexpr char kFactor[] = "multiplied with another parameter";
constexpr char kPicked[] = "an index picks parts of it whose products are not seen";
constexpr char kPart[] = "only a part or a reshaped form of it is multiplied";

template <typename Take>
void ForEachTensor(const c10::IValue& value, Take take) {
  if (value.isTensor()) {
    take(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) take(tensor);
  }
}

// Operators on nested tensors multiply their rows by operators on one matrix.
template <typename Values>
bool AnyNested(const Values& values) {
  return std::any_of(values.begin(), values.end(), [](const c10::IValue& value) {
    return value.isTensor() && value.toTensor().defined() && value.toTensor().is_nested();
  });
}

at::Tensor Turned(const at::Tensor& tensor) {
  return tensor.defined() && tensor.dim() == 2 ? tensor.t() : tensor;
}

// Removes a batch dimension of size 1, or one that is an expanded matrix.
at::Tensor WithoutBatch(const at::Tensor& factor) {
  const bool one = factor.dim() == 3 && (factor.size(0) == 1 || factor.stride(0) == 0);
  return one ? factor.select(0, 0) : factor;
}

}  // namespace

struct ProductWatcher::Inside : at::ObserverContext {
  bool known = false;                 // counted in depth_
  std::optional<FoundWeight> copied;  // the weight that the output may copy
  at::Tensor recurrent;               // the factor of the hidden states that the operator computes
  bool backwards = false;             // goes backwards in time
  bool chooses = false;               // a router's top-k
  std::vector<int> taken;             // the parameters that an unknown operator takes
  std::optional<GatheredWeights::Gather> gather;  // what the output picks from a weight
  std::optional<RouteTracker::Route> route;       // that the output is on
};

thread_local ProductWatcher* ProductWatcher::current_ = nullptr;

ProductWatcher::ProductWatcher(const TensorTable& table, Handler handler, ChoiceHandler on_choice)
    : handler_(std::move(handler)), on_choice_(std::move(on_choice)), weights_(table) {
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
  if (self == nullptr || self->depth_ > 0 || AnyNested(record.inputs())) return nullptr;
  ++self->records_;
  // Conversions made here are not products of the model.
  at::DisableRecordFunctionGuard quiet;
  const WatchedOp* op = FindOp(record.name());
  Inside inside;
  inside.known = op != nullptr;
  self->product_.reset();
  try {
    if (WritesInPlace(record.name())) self->weights_.NoteWrite(TensorAt(record.inputs(), 0));
    inside.route = self->routes_.Find(record.inputs());
    if (op != nullptr) {
      ++self->depth_;
      self->OnKnown(*op, record.inputs(), inside);
      if (op->kind != OpKind::kCopy && op->kind != OpKind::kLookUp) inside.route = self->product_;
    } else {
      self->NoteTaken(record, inside);
    }
  } catch (const std::exception& error) {
    self->Fail(ErrorText(error));
  }
  if (!inside.known && inside.taken.empty() && !inside.route) return nullptr;
  return std::make_unique<Inside>(std::move(inside));
}

void ProductWatcher::OnKnown(const WatchedOp& op, c10::ArrayRef<const c10::IValue> inputs,
                             Inside& inside) {
  switch (op.kind) {
    case OpKind::kProduct:
      return OnMatrixProduct(TensorAt(inputs, op.left), TensorAt(inputs, op.right));
    case OpKind::kGrouped:
      return OnGrouped(TensorAt(inputs, 0), TensorAt(inputs, 1), TensorAt(inputs, 2));
    case OpKind::kLinear:
      return OnMatrixProduct(TensorAt(inputs, 0), Turned(TensorAt(inputs, 1)));
    case OpKind::kConvolution:
    case OpKind::kTransposedConvolution:
    case OpKind::kGeneralConvolution:
      return OnConvolution(op.kind, inputs);
    case OpKind::kBilinear:
      return OnBilinear(TensorAt(inputs, 1), TensorAt(inputs, 2));
    case OpKind::kRecurrentLayer:
      OnMatrixProduct(TensorAt(inputs, 0), Turned(TensorAt(inputs, 1)));
      inside.recurrent = Turned(TensorAt(inputs, 2));
      OnHiddenStates(TensorAt(inputs, 5), inside.recurrent);
      inside.backwards = inputs[7].toBool();
      return;
    case OpKind::kLookUp:
      return OnLookUp(op, inputs, inside);
    case OpKind::kChoice:
      inside.chooses = IsRouters(inputs);
      return;
    case OpKind::kCopy:
      inside.copied = weights_.Find(TensorAt(inputs, 0));
      if (const auto found = gathered_.Find(TensorAt(inputs, 0))) {
        if (found->rewritten) uncovered_.emplace(found->gather.entry, kRewritten);
        inside.gather = found->gather;
        inside.gather->turned = found->turned;
      }
      return;
  }
}

void ProductWatcher::OnEnd(const at::RecordFunction& record, at::ObserverContext* context) {
  ProductWatcher* self = current_;
  if (context == nullptr || self == nullptr) return;
  const auto* inside = static_cast<const Inside*>(context);
  if (inside->known) --self->depth_;
  at::DisableRecordFunctionGuard quiet;
  try {
    const std::vector<c10::IValue>& outputs = record.outputs();
    if (outputs.empty() || AnyNested(outputs)) return;
    if (inside->copied && outputs[0].isTensor()) {
      self->weights_.NoteCopy(*inside->copied, outputs[0].toTensor());
    }
    if (inside->gather && outputs[0].isTensor()) {
      self->gathered_.Note(*inside->gather, outputs[0].toTensor());
    }
    if (inside->route && outputs[0].isTensor()) {
      self->routes_.Note(*inside->route, outputs[0].toTensor());
    }
    if (inside->recurrent.defined()) {
      // [T, B, hidden]: all states but the last are inputs of the next step.
      const at::Tensor states = outputs[0].toTensor();
      const int64_t steps = states.size(0) - 1;
      self->OnHiddenStates(states.narrow(0, inside->backwards ? 1 : 0, steps), inside->recurrent);
    }
    if (inside->chooses && self->on_choice_ && outputs.size() > 1) {
      self->on_choice_(outputs[1].toTensor());
    }
    for (int entry : inside->taken) self->NoteTaker(entry, record.name(), outputs);
  } catch (const std::exception& error) {
    self->Fail(ErrorText(error));
  }
}

void ProductWatcher::NoteTaken(const at::RecordFunction& record, Inside& inside) {
  if (OnlyCopies(record.name())) return;
  for (const c10::IValue& input : record.inputs()) {
    ForEachTensor(input, [&](const at::Tensor& tensor) {
      const auto found = weights_.Find(tensor);
      if (found && weights_.parameter(found->entry).dim() >= 2) {
        inside.taken.push_back(found->entry);
      }
    });
  }
}

// The innermost operator ends first. emplace keeps it.
void ProductWatcher::NoteTaker(int entry, const char* op, const std::vector<c10::IValue>& outputs) {
  bool computes = false;
  bool is_view = false;
  for (const c10::IValue& output : outputs) {
    computes |= output.isTensor() || output.isTensorList() || output.isObject();
    ForEachTensor(output, [&](const at::Tensor& tensor) {
      const auto found = weights_.Find(tensor);
      is_view |= found && found->entry == entry;
    });
  }
  if (computes && !is_view) takers_.emplace(entry, op);
}

// Whether a top-k chooses a few of a product's outputs. One over another dimension pools.
bool ProductWatcher::IsRouters(c10::ArrayRef<const c10::IValue> inputs) {
  const at::Tensor scores = TensorAt(inputs, 0);
  if (!scores.defined() || scores.dim() == 0) return false;
  const int64_t dim = inputs[2].toInt();
  const bool last = dim == -1 || dim == scores.dim() - 1;
  return last && 2 * inputs[1].toInt() <= scores.size(-1) && routes_.NoteChoice(scores);
}

std::map<int, std::string> ProductWatcher::uncovered() const {
  std::map<int, std::string> all = uncovered_;
  for (const int entry : picked_) {
    if (!picked_multiplied_.contains(entry)) all.emplace(entry, kPicked);
  }
  return all;
}

void ProductWatcher::OnLookUp(const WatchedOp& op, c10::ArrayRef<const c10::IValue> inputs,
                              Inside& inside) {
  const auto found = weights_.Find(TensorAt(inputs, 0));
  if (!found) return;
  const at::Tensor index = PickedRows(op.name, inputs);
  const at::Tensor& stored = weights_.parameter(found->entry);
  const bool whole = found->view.defined() && Layout::Of(found->view) == Layout::Of(stored);
  if (index.defined() && whole && !found->rewritten && stored.dim() == 3 &&
      stored.is_contiguous()) {
    inside.gather = {found->entry, index.clone()};
    if (index.numel() > 0) picked_.insert(found->entry);
  } else {
    if (stored.dim() == 2 && PicksRows(op.name, inputs)) {
      tables_.insert(found->entry);
      if (found->rewritten) uncovered_.emplace(found->entry, kRewritten);
    } else {
      uncovered_.emplace(found->entry, kPicked);
    }
  }
}

void ProductWatcher::OnMatrixProduct(const at::Tensor& left, const at::Tensor& right) {
  if (!left.defined() || !right.defined() || OnStack(left, right)) return;
  const at::Tensor a = WithoutBatch(left);
  const at::Tensor b = WithoutBatch(right);
  const auto weight_a = weights_.Find(a);
  const auto weight_b = weights_.Find(b);
  if (weight_a && weight_b) {
    uncovered_.emplace(weight_a->entry, kFactor);
    // Either a learned input of a layer, or a factorised weight whose factors see no activations.
    if (weights_.IsTurned(*weight_b)) return TakeMatrix(*weight_b, left, InputForm::Kind::kRows);
    uncovered_.emplace(weight_b->entry, kFactor);
  } else if (weight_b) {
    TakeMatrix(*weight_b, left, InputForm::Kind::kRows);
  } else if (weight_a) {
    FoundWeight turned = *weight_a;
    if (turned.view.defined() && turned.view.dim() == 2) turned.view = turned.view.t();
    const bool vector = right.dim() == 1;
    TakeMatrix(turned, right, vector ? InputForm::Kind::kRows : InputForm::Kind::kColumns);
  }
}

// Whether one factor is, or has been picked from, a stack of matrices.
bool ProductWatcher::OnStack(const at::Tensor& left, const at::Tensor& right) {
  for (const bool is_left : {true, false}) {
    const at::Tensor& factor = is_left ? left : right;
    const at::Tensor& input = is_left ? right : left;
    if (factor.dim() != 3) continue;
    if (const auto found = gathered_.Find(factor)) {
      const int entry = found->gather.entry;
      picked_multiplied_.insert(entry);
      if (found->rewritten || input.dim() != 3 || input.size(0) != factor.size(0)) {
        uncovered_.emplace(entry, found->rewritten ? kRewritten : kPart);
        return true;
      }
      const int64_t matrices = weights_.parameter(entry).size(0);
      for (const auto& [matrix, places] : PlacesOf(found->gather.index, matrices)) {
        TakeOfStack({entry, found->turned, is_left}, matrix, input.index_select(0, places));
      }
      return true;
    }
    const auto stack = StackOf(factor);
    const bool each = input.dim() == 3 && input.size(0) == factor.size(0);
    if (!stack || !each || weights_.Find(input)) continue;
    for (int64_t matrix = 0; matrix < factor.size(0); ++matrix) {
      TakeOfStack({stack->entry, stack->turned, is_left}, matrix, input.select(0, matrix));
    }
    return true;
  }
  return false;
}

// The rows of `input` are sorted by matrix, with `ends` behind the last of each; those behind the
// last end belong to none. Without `ends` it is a batched product.
void ProductWatcher::OnGrouped(const at::Tensor& input, const at::Tensor& factor,
                               const at::Tensor& ends) {
  if (!ends.defined()) return OnMatrixProduct(input, factor);
  const auto stack = StackOf(factor);
  if (!stack || input.dim() != 2) {
    if (const auto found = weights_.Find(factor)) uncovered_.emplace(found->entry, kPart);
    return;
  }
  const at::Tensor all = ends.to(at::kCPU, at::kLong).contiguous();
  int64_t begin = 0;
  for (int64_t matrix = 0; matrix < all.numel(); ++matrix) {
    const int64_t end = all.const_data_ptr<int64_t>()[matrix];
    TakeOfStack({stack->entry, stack->turned, /*is_left=*/false}, matrix,
                input.narrow(0, begin, end - begin));
    begin = end;
  }
}

// The whole parameter [layers, a, b] that a tensor is, as it is or with each matrix transposed.
std::optional<ProductWatcher::Stack> ProductWatcher::StackOf(const at::Tensor& factor) const {
  const auto found = weights_.Find(factor);
  if (!found || found->rewritten || !found->view.defined() || found->view.dim() != 3) {
    return std::nullopt;
  }
  const at::Tensor& stored = weights_.parameter(found->entry);
  if (stored.dim() != 3 || !stored.is_contiguous() || stored.size(0) == 1) return std::nullopt;
  const bool plain = Layout::Of(found->view) == Layout::Of(stored);
  const bool turned = Layout::Of(found->view.transpose(1, 2)) == Layout::Of(stored);
  if (!plain && !turned) return std::nullopt;
  return Stack{found->entry, !plain, false};
}

void ProductWatcher::TakeOfStack(const Stack& stack, int64_t matrix, at::Tensor input) {
  const at::Tensor& stored = weights_.parameter(stack.entry);
  // Stored [m, d] if the left factor is as stored, or the right one turned.
  const bool transposed = stack.is_left == stack.turned;
  const int64_t rows = stored.size(1);
  const int64_t columns = stored.size(2);
  handler_({.entry = stack.entry,
            .part = stored.size(0) > 1,
            .first = matrix * rows * columns,
            .outputs = transposed ? columns : rows,
            .inputs = transposed ? rows : columns,
            .transposed = transposed,
            .input = {std::move(input),
                      {stack.is_left ? InputForm::Kind::kColumns : InputForm::Kind::kRows}}});
}

// A recurrent operator multiplied `states` [.., d] with `factor` [d, m] in its time steps.
void ProductWatcher::OnHiddenStates(const at::Tensor& states, const at::Tensor& factor) {
  const auto weight = weights_.Find(factor);
  if (weight && states.numel() > 0) TakeMatrix(*weight, states, InputForm::Kind::kRows);
}

// y_o = a^T W_o b is the product of W [O * A, B] with b, followed by one with a.
void ProductWatcher::OnBilinear(const at::Tensor& b, const at::Tensor& kernel) {
  auto weight = weights_.Find(kernel);
  if (!weight) return;
  at::Tensor& view = weight->view;
  if (view.defined() && view.is_contiguous()) view = view.flatten(0, 1).t();
  TakeMatrix(*weight, b, InputForm::Kind::kRows);
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
  // A weight of more than two dimensions counts as the matrix that its memory holds.
  const bool matrix = stored.dim() == 2;
  const at::Tensor as_inputs_outputs = matrix ? stored : stored.view(factor.sizes());
  const at::Tensor as_outputs_inputs =
      matrix ? stored.t() : stored.view({factor.size(1), factor.size(0)}).t();
  const Layout layout = Layout::Of(factor);
  const bool transposed = layout == Layout::Of(as_inputs_outputs);
  // A vector or a 1 x 1 weight has both layouts.
  const bool plain = layout == Layout::Of(as_outputs_inputs);
  if (!transposed && !plain) {
    uncovered_.emplace(weight.entry, kPart);
    return;
  }
  if (form == InputForm::Kind::kRows && factor.size(1) < factor.size(0)) {
    product_ = {weight.entry, factor.size(1)};
  }
  handler_({.entry = weight.entry,
            .outputs = factor.size(1),
            .inputs = factor.size(0),
            .transposed = !plain,
            .input = {input, {form}}});
}

// `factor` [d, m] has some of the parameter's elements.
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

void ProductWatcher::OnConvolution(OpKind kind, c10::ArrayRef<const c10::IValue> inputs) {
  const at::Tensor images = TensorAt(inputs, 0);
  const at::Tensor kernel = TensorAt(inputs, 1);
  const auto weight = weights_.Find(kernel);
  if (!weight) return;
  const at::Tensor& stored = weights_.parameter(weight->entry);
  const auto leave_out = [&](std::string reason) {
    uncovered_.emplace(weight->entry, std::move(reason));
  };
  if (weight->rewritten) return leave_out(kRewritten);
  const int64_t spatial = stored.dim() - 2;
  if (!weight->view.defined() || weight->view.const_data_ptr() != stored.const_data_ptr() ||
      Layout::Of(weight->view) != Layout::Of(stored) || kernel.dim() != stored.dim()) {
    return leave_out(kPart);
  }
  const int64_t groups = GroupsOf(kind, inputs);
  if (groups != 1) return leave_out(StrCat("a convolution in ", groups, " groups"));
  if (IsTransposed(kind, inputs)) {
    // Multiplies each pixel [C] with W [C, O * kernel]; overlapping results are summed later.
    FoundWeight factor = *weight;
    if (stored.is_contiguous()) factor.view = factor.view.flatten(1);
    return TakeMatrix(factor, images.flatten(-spatial), InputForm::Kind::kColumns);
  }
  handler_({.entry = weight->entry,
            .outputs = stored.size(0),
            .inputs = stored.numel() / stored.size(0),
            .input = {images, WindowsOf(inputs, stored.sizes().slice(2))}});
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
