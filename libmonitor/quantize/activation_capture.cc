// Compiled with NDEBUG: the layout of at::RecordFunction depends on it and must be that of the
// LibTorch library.
#include "quantize/activation_capture.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/zeros.h"
#include "ATen/record_function.h"
#include "quantize/layer_selection.h"
#include "report/str_cat.h"

namespace ptqwatch::internal {
namespace {

/// A product as the forward pass makes it: activations [.., d] times a whole weight.
struct Product {
  int entry = 0;
  bool transposed = false;  ///< the weight is stored [inputs, outputs]
  at::Tensor activations;   ///< [.., d]
};

/// Which activation a tensor is: the same handle, not written in between. The weak reference keeps
/// the handle's address from being used again. Two views of one activation count as two inputs,
/// which costs a Gram but never mixes them up.
struct Identity {
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> handle;
  int64_t version;

  explicit Identity(const at::Tensor& tensor)
      : handle(tensor.getIntrusivePtr()), version(tensor.is_inference() ? 0 : tensor._version()) {}
  bool operator==(const Identity& other) const {
    return handle == other.handle && version == other.version;
  }
};

/// Gets every outermost product of the thread's forward pass while it is installed. A callback
/// cannot carry state, hence the thread-local pointer.
class ProductWatcher {
 public:
  using Handler = std::function<void(const Product&)>;
  ProductWatcher(const TensorTable& table, Handler handler)
      : table_(table), handler_(std::move(handler)) {
    for (size_t i = 0; i < table.entries.size(); ++i) {
      const at::Tensor& tensor = table.entries[i].tensor;
      if (tensor.numel() == 0 || !table.entries[i].is_parameter) continue;
      entry_at_.emplace(static_cast<const char*>(tensor.const_data_ptr()), static_cast<int>(i));
    }
    current_ = this;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&ProductWatcher::OnStart, &ProductWatcher::OnEnd)
            .needsInputs(true)
            .scopes({at::RecordScope::FUNCTION}));
  }
  ~ProductWatcher() {
    at::removeCallback(handle_);
    current_ = nullptr;
  }
  ProductWatcher(const ProductWatcher&) = delete;
  ProductWatcher& operator=(const ProductWatcher&) = delete;

  /// The first problem met inside a callback; ATen swallows exceptions there.
  const std::string& problem() const { return problem_; }
  const std::map<int, std::string>& uncovered() const { return uncovered_; }
  int records() const { return records_; }

 private:
  struct Inside : at::ObserverContext {};

  static std::unique_ptr<at::ObserverContext> OnStart(const at::RecordFunction& record) {
    ProductWatcher* self = current_;
    if (self == nullptr) return nullptr;
    const char* name = record.name();
    if (std::strncmp(name, "aten::", 6) != 0) return nullptr;
    ++self->records_;
    try {
      if (std::strcmp(name + 6, "embedding") == 0) {
        self->NoteEmbedding(record.inputs());
        return nullptr;
      }
      const bool product = IsProduct(name + 6);
      if (!product) return nullptr;
      if (self->depth_++ == 0) self->OnProduct(name + 6, record.inputs());
    } catch (const c10::Error& error) {
      self->Fail(error.what_without_backtrace());
    } catch (const std::exception& error) {
      self->Fail(error.what());
    }
    return std::make_unique<Inside>();
  }

  static void OnEnd(const at::RecordFunction&, at::ObserverContext* context) {
    if (context != nullptr && current_ != nullptr) --current_->depth_;
  }

  static bool IsProduct(const char* op) {
    for (const char* known :
         {"linear", "addmm", "matmul", "mm", "bmm", "conv1d", "conv2d", "convolution"}) {
      if (std::strcmp(op, known) == 0) return true;
    }
    return false;
  }

  void Fail(const std::string& problem) {
    if (problem_.empty()) problem_ = problem;
  }

  // The parameter whose memory `tensor` lies in, or -1.
  int EntryOf(const at::Tensor& tensor) const {
    if (!tensor.defined() || tensor.numel() == 0) return -1;
    const char* address = static_cast<const char*>(tensor.const_data_ptr());
    const auto after = entry_at_.upper_bound(address);
    if (after == entry_at_.begin()) return -1;
    const auto [begin, entry] = *std::prev(after);
    return address < begin + TensorOf(entry).nbytes() ? entry : -1;
  }

  const at::Tensor& TensorOf(int entry) const {
    return table_.entries[static_cast<size_t>(entry)].tensor;
  }

  void NoteEmbedding(c10::ArrayRef<const c10::IValue> inputs) {
    if (inputs.empty() || !inputs[0].isTensor()) return;
    const int entry = EntryOf(inputs[0].toTensor());
    if (entry >= 0) uncovered_.emplace(entry, "embedding");
  }

  void OnProduct(const char* op, c10::ArrayRef<const c10::IValue> inputs) {
    size_t left = 0;
    size_t right = 1;
    if (std::strcmp(op, "addmm") == 0) {
      left = 1;
      right = 2;
    }
    if (inputs.size() <= right || !inputs[left].isTensor() || !inputs[right].isTensor()) return;
    const at::Tensor a = inputs[left].toTensor();
    at::Tensor b = inputs[right].toTensor();
    const int entry_a = EntryOf(a);
    const int entry_b = EntryOf(b);
    if (entry_a < 0 && entry_b < 0) return;
    if (std::strncmp(op, "conv", 4) == 0) {
      if (entry_b >= 0)
        uncovered_.emplace(entry_b, "a convolution; only matrix products are covered");
      return;
    }
    if (std::strcmp(op, "linear") == 0 && b.dim() == 2) b = b.t();
    if (entry_b >= 0) {
      Take(entry_b, b, a);
    } else if (a.dim() == 2 && b.dim() <= 2) {
      // W x: the same product, transposed.
      Take(entry_a, a.t(), b.dim() == 2 ? b.t() : b);
    } else {
      uncovered_.emplace(entry_a, "the left factor of a batched product");
    }
  }

  // `factor` [d, m] is the weight as the right factor.
  void Take(int entry, const at::Tensor& factor, const at::Tensor& activations) {
    const at::Tensor& weight = TensorOf(entry);
    if (factor.dim() != 2 || weight.dim() != 2 || factor.numel() != weight.numel() ||
        factor.const_data_ptr() != weight.const_data_ptr()) {
      uncovered_.emplace(entry, "only a part or a reshaped form of it is multiplied");
      return;
    }
    // Sizes and strides: a view of other sizes has the same address, and a square one may be W or
    // its transpose.
    const bool as_stored = factor.sizes() == weight.sizes() && factor.strides() == weight.strides();
    const at::Tensor turned = weight.t();
    const bool as_turned = factor.sizes() == turned.sizes() && factor.strides() == turned.strides();
    if (!as_stored && !as_turned) {
      uncovered_.emplace(entry, "only a part or a reshaped form of it is multiplied");
      return;
    }
    // A 1 x 1 weight is both.
    const bool transposed = as_stored && !as_turned;
    handler_({entry, transposed, activations});
  }

  static thread_local ProductWatcher* current_;
  const TensorTable& table_;
  const Handler handler_;
  std::map<const char*, int> entry_at_;  // first byte of each parameter
  std::map<int, std::string> uncovered_;
  std::string problem_;
  at::CallbackHandle handle_ = 0;
  int depth_ = 0;
  int records_ = 0;
};

thread_local ProductWatcher* ProductWatcher::current_ = nullptr;

// A build whose NDEBUG differs from LibTorch's reads other fields than were written.
absl::Status SelfCheck() {
  TensorTable table;
  table.entries.push_back({"w", {}, true, at::zeros({2, 3})});
  const at::Tensor x = at::zeros({4, 2});
  int products = 0;
  bool right = false;
  ProductWatcher watcher(table, [&](const Product& product) {
    ++products;
    right = product.transposed && product.activations.const_data_ptr() == x.const_data_ptr();
  });
  at::mm(x, table.entries[0].tensor);
  if (products == 1 && right && watcher.problem().empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat("activation capture does not work with this LibTorch: a matrix product gave ",
             products, " records. ", watcher.problem(),
             watcher.records() == 0 ? "RecordFunction callbacks do not fire." : ""));
}

absl::Status RunForward(Replica& replica, const Batch& batch, const ProductWatcher& watcher) {
  absl::StatusOr<LossValues> losses = replica.Losses(batch);
  if (!losses.ok()) return losses.status();
  if (watcher.problem().empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat("activation capture: ", watcher.problem()));
}

std::vector<std::string> NamesOf(const TensorEntry& entry) {
  std::vector<std::string> names = {entry.name};
  names.insert(names.end(), entry.aliases.begin(), entry.aliases.end());
  return names;
}

}  // namespace

int64_t CapturePlan::gram_bytes() const {
  int64_t bytes = 0;
  for (int64_t d : gram_inputs) bytes += 8 * d * d;
  return bytes;
}

absl::StatusOr<CapturePlan> PlanCapture(Replica& replica, const Batch& batch,
                                        const LayerSelection& selection) {
  if (absl::Status status = SelfCheck(); !status.ok()) return status;
  const TensorTable& table = replica.table();

  struct Use {
    bool transposed = false;
    bool mixed = false;
    std::vector<size_t> inputs;  // indices into `identities`, in order of use
  };
  std::vector<int> order;
  std::unordered_map<int, Use> uses;
  std::vector<Identity> identities;
  int last = -1;
  std::map<int, std::string> uncovered;
  {
    ProductWatcher watcher(table, [&](const Product& product) {
      auto [use, added] = uses.try_emplace(product.entry);
      if (added) order.push_back(product.entry);
      if (!added && use->second.transposed != product.transposed) use->second.mixed = true;
      use->second.transposed = product.transposed;
      Identity identity(product.activations);
      size_t i = 0;
      while (i < identities.size() && !(identities[i] == identity)) ++i;
      if (i == identities.size()) identities.push_back(std::move(identity));
      use->second.inputs.push_back(i);
      last = product.entry;
    });
    if (absl::Status status = RunForward(replica, batch, watcher); !status.ok()) return status;
    uncovered = watcher.uncovered();
  }

  CapturePlan plan;
  std::map<std::pair<int64_t, std::vector<size_t>>, int> gram_of;
  for (int entry : order) {
    const TensorEntry& item = table.entries[static_cast<size_t>(entry)];
    const Use& use = uses[entry];
    std::string reason = WhyNotSelected(selection, NamesOf(item));
    if (reason.empty() && entry == last && !selection.output_head) {
      reason = uncovered.count(entry) > 0 ? "output head, tied to an embedding" : "output head";
    }
    if (reason.empty() && uncovered.count(entry) > 0) {
      reason = StrCat("also used as: ", uncovered[entry]);
    }
    if (reason.empty() && use.mixed) reason = "used in both orientations";
    if (!reason.empty()) {
      uncovered[entry] = reason;
      continue;
    }
    CoveredLayer layer;
    layer.entry = entry;
    layer.name = item.name;
    layer.transposed = use.transposed;
    layer.outputs = item.tensor.size(use.transposed ? 1 : 0);
    layer.inputs = item.tensor.size(use.transposed ? 0 : 1);
    const auto [gram, added] =
        gram_of.try_emplace({layer.inputs, use.inputs}, static_cast<int>(plan.gram_inputs.size()));
    if (added) plan.gram_inputs.push_back(layer.inputs);
    layer.gram = gram->second;
    plan.covered_parameters += item.tensor.numel();
    plan.layers.push_back(std::move(layer));
  }
  for (size_t i = 0; i < table.entries.size(); ++i) {
    const TensorEntry& item = table.entries[i];
    const int entry = static_cast<int>(i);
    if (!item.is_parameter) continue;
    if (uses.count(entry) > 0 && uncovered.count(entry) == 0) continue;
    std::string reason;
    if (auto found = uncovered.find(entry); found != uncovered.end()) {
      reason = found->second;
    } else if (item.tensor.dim() < 2) {
      reason = "not a matrix (a norm, a bias)";
    } else {
      reason = "not seen in a matrix product of the forward pass";
    }
    plan.skipped.push_back({item.name, reason, item.tensor.numel()});
  }
  if (plan.layers.empty()) {
    std::string why = "no layer is left to quantize:";
    for (const SkippedLayer& skipped : plan.skipped) {
      why += StrCat(" '", skipped.name, "' (", skipped.reason, ")");
    }
    return absl::FailedPreconditionError(
        StrCat(why, ". See MonitorOptions.layers (include, exclude, output_head)."));
  }
  return plan;
}

absl::StatusOr<std::vector<GramStatistics>> CaptureGrams(ExecutionContext& context,
                                                         Replica& replica, const CapturePlan& plan,
                                                         const std::vector<Batch>& batches) {
  std::vector<GramAccumulator> grams;
  for (int64_t inputs : plan.gram_inputs) grams.emplace_back(inputs);
  // Of the layers that share a Gram, the first one feeds it; the others must go on seeing the same
  // inputs.
  struct Role {
    const CoveredLayer* layer = nullptr;
    bool feeds = false;
    size_t uses = 0;  // in this forward pass
  };
  std::unordered_map<int, Role> roles;
  std::vector<std::vector<Identity>> seen(plan.gram_inputs.size());
  for (const CoveredLayer& layer : plan.layers) {
    bool first = true;
    for (const auto& [entry, role] : roles) first &= role.layer->gram != layer.gram;
    roles[layer.entry] = {&layer, first, 0};
  }
  absl::Status failed;
  ProductWatcher watcher(replica.table(), [&](const Product& product) {
    const auto found = roles.find(product.entry);
    if (!failed.ok() || found == roles.end()) return;
    Role& role = found->second;
    std::vector<Identity>& inputs = seen[static_cast<size_t>(role.layer->gram)];
    Identity identity(product.activations);
    const size_t use = role.uses++;
    if (product.transposed != role.layer->transposed ||
        (!role.feeds && (use >= inputs.size() || !(inputs[use] == identity)))) {
      failed = absl::FailedPreconditionError(
          StrCat("the forward pass uses '", role.layer->name,
                 "' in another way than when the monitor was created"));
      return;
    }
    if (!role.feeds) return;
    inputs.push_back(std::move(identity));
    // Our own conversions below are no products of the model.
    at::DisableRecordFunctionGuard quiet;
    const at::Tensor x = product.activations.detach()
                             .to(at::TensorOptions().dtype(at::kFloat).device(at::kCPU))
                             .reshape({-1, product.activations.size(-1)})
                             .contiguous();
    failed = grams[static_cast<size_t>(role.layer->gram)].Add(
        context, {x.const_data_ptr<float>(), x.size(0), x.size(1)});
  });
  for (const Batch& batch : batches) {
    if (absl::Status status = context.Checkpoint(); !status.ok()) return status;
    for (std::vector<Identity>& inputs : seen) inputs.clear();
    for (auto& [entry, role] : roles) role.uses = 0;
    absl::Status status = RunForward(replica, batch, watcher);
    if (!failed.ok()) return failed;
    if (!status.ok()) return status;
  }
  std::vector<GramStatistics> statistics;
  for (GramAccumulator& gram : grams) statistics.push_back(gram.Take());
  return statistics;
}

}  // namespace ptqwatch::internal
