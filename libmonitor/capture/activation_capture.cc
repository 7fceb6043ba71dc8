#include "capture/activation_capture.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ATen/ops/eye.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "capture/product_watcher.h"
#include "snapshot/batches.h"

namespace ptqwatch::internal {
namespace {

// A layer's part in a capture. The first layer of a shared Gram feeds it; the others must see the
// same inputs.
struct Role {
  const CoveredLayer* layer = nullptr;
  size_t gram = 0;  // index into the captured Grams
  bool feeds = false;
  size_t uses = 0;  // number of uses in this forward pass
};

class Capture {
 public:
  Capture(const CapturePlan& plan, absl::Span<const int> grams,
          std::vector<std::unique_ptr<GramSum>> sums, const ExecutionContext& context)
      : context_(context), sums_(std::move(sums)), seen_(grams.size()) {
    for (size_t i = 0; i < grams.size(); ++i) {
      bool first = true;
      for (const CoveredLayer& layer : plan.layers) {
        if (layer.gram == grams[i]) roles_[layer.weight] = {&layer, i, std::exchange(first, false)};
      }
    }
  }

  // The Grams of embeddings, which meet no input: one row for each column.
  absl::Status AddTables(Replica& replica) {
    for (const auto& [weight, role] : roles_) {
      if (!role.layer->table || !role.feeds) continue;
      const at::Tensor& stored =
          replica.table().entries[static_cast<size_t>(role.layer->entry)].tensor;
      const LayerInput rows = {at::eye(role.layer->inputs, stored.options().dtype(at::kFloat)), {}};
      PTQWATCH_RETURN_IF_ERROR(sums_[role.gram]->Add(rows, context_));
    }
    return absl::OkStatus();
  }

  void BeginForward() {
    for (std::vector<InputIdentity>& inputs : seen_) inputs.clear();
    for (auto& [weight, role] : roles_) role.uses = 0;
  }

  void Add(const Product& product) {
    if (product.input.form.kind != InputForm::Kind::kWindows && product.inputs > 0) {
      rows_[WeightKey::Of(product)] += product.input.tensor.numel() / product.inputs;
    }
    const auto found = roles_.find(WeightKey::Of(product));
    if (!failed_.ok() || found == roles_.end()) return;
    Role& role = found->second;
    std::vector<InputIdentity>& inputs = seen_[role.gram];
    InputIdentity identity(product.input);
    const size_t use = role.uses++;
    const bool as_planned =
        product.transposed == role.layer->transposed && product.inputs == role.layer->inputs;
    if (!as_planned || (!role.feeds && (use >= inputs.size() || !(inputs[use] == identity)))) {
      failed_ =
          absl::FailedPreconditionError(StrCat("the forward pass uses '", role.layer->name,
                                               "' differently than when the capture was planned"));
      return;
    }
    if (!role.feeds) return;
    inputs.push_back(std::move(identity));
    failed_ = sums_[role.gram]->Add(product.input, context_);
  }

  const absl::Status& failed() const { return failed_; }
  absl::StatusOr<CapturedGrams> Take() {
    CapturedGrams captured;
    for (const std::unique_ptr<GramSum>& sum : sums_) {
      PTQWATCH_ASSIGN_OR_RETURN(captured.grams.emplace_back(), sum->Take(context_));
    }
    for (const auto& [weight, rows] : rows_) captured.rows = std::max(captured.rows, rows);
    return captured;
  }

 private:
  const ExecutionContext& context_;
  std::vector<std::unique_ptr<GramSum>> sums_;
  std::map<WeightKey, Role> roles_;
  std::map<WeightKey, int64_t> rows_;  // that each weight met
  std::vector<std::vector<InputIdentity>> seen_;
  absl::Status failed_;
};

}  // namespace

absl::StatusOr<CapturedGrams> CaptureGrams(Replica& replica, const CapturePlan& plan,
                                           absl::Span<const int> grams,
                                           const std::vector<Batch>& batches,
                                           QuantizeBackend& backend,
                                           const ExecutionContext& context) {
  std::vector<std::unique_ptr<GramSum>> sums;
  for (int gram : grams) {
    PTQWATCH_ASSIGN_OR_RETURN(sums.emplace_back(),
                              backend.Sum(plan.gram_inputs[static_cast<size_t>(gram)]));
  }
  Capture capture(plan, grams, std::move(sums), context);
  PTQWATCH_RETURN_IF_ERROR(capture.AddTables(replica));
  ProductWatcher watcher(replica.table(), [&](const Product& product) { capture.Add(product); });
  for (size_t i = 0; i < batches.size(); ++i) {
    PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
    capture.BeginForward();
    const absl::Status forward = RunWatched(replica, batches[i], watcher);
    PTQWATCH_RETURN_IF_ERROR(capture.failed());
    if (!forward.ok()) return OfBatch("calibration", i, forward);
  }
  return capture.Take();
}

}  // namespace ptqwatch::internal
