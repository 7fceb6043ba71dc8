#include "capture/capture_plan.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "capture/layer_selection.h"

namespace ptqwatch::internal {
namespace {

// How a forward pass uses one weight.
struct Use {
  int64_t outputs = 0;
  int64_t inputs = 0;
  bool transposed = false;
  bool mixed = false;           // not the same matrix in all its products
  std::vector<size_t> sources;  // which inputs, in order of use
  size_t last = 0;              // place of its last product
};

// Collects the products of one forward pass.
class Survey {
 public:
  void Add(const Product& product) {
    auto [found, added] = uses_.try_emplace(product.entry);
    Use& use = found->second;
    if (added) {
      order_.push_back(product.entry);
      use.outputs = product.outputs;
      use.inputs = product.inputs;
      use.transposed = product.transposed;
    }
    use.mixed |= use.transposed != product.transposed || use.inputs != product.inputs;
    InputIdentity identity(product.input);
    const auto known = std::find(identities_.begin(), identities_.end(), identity);
    use.sources.push_back(static_cast<size_t>(known - identities_.begin()));
    if (known == identities_.end()) identities_.push_back(std::move(identity));
    use.last = products_++;
    last_ = product.entry;
  }

  const std::vector<int>& order() const { return order_; }
  const Use& use(int entry) const { return uses_.at(entry); }
  bool Has(int entry) const { return uses_.count(entry) > 0; }
  int last() const { return last_; }

 private:
  std::vector<int> order_;  // of first use
  std::unordered_map<int, Use> uses_;
  std::vector<InputIdentity> identities_;
  size_t products_ = 0;
  int last_ = -1;
};

std::vector<std::string> NamesOf(const TensorEntry& entry) {
  std::vector<std::string> names = {entry.name};
  names.insert(names.end(), entry.aliases.begin(), entry.aliases.end());
  return names;
}

std::string Megabytes(int64_t bytes) { return StrCat(bytes / 1'000'000, " MB"); }

// Empty when the weight is to be quantized.
std::string WhySkipped(const TensorEntry& item, int entry, const Survey& survey,
                       const std::map<int, std::string>& uncovered, const LayerSelection& selection,
                       int64_t max_gram_bytes) {
  const Use& use = survey.use(entry);
  const auto other = uncovered.find(entry);
  if (std::string reason = WhyNotSelected(selection, NamesOf(item)); !reason.empty()) {
    return reason;
  }
  if (entry == survey.last() && !selection.output_head) {
    return other != uncovered.end() ? "output head, tied to an embedding" : "output head";
  }
  if (other != uncovered.end()) return StrCat("also used as: ", other->second);
  if (use.mixed) return "used in both orientations, or as matrices of different shapes";
  if (GramBytes(use.inputs) > max_gram_bytes) {
    return StrCat("the Gram matrix of its ", use.inputs, " inputs takes ",
                  Megabytes(GramBytes(use.inputs)), ", max_gram_bytes allows ",
                  Megabytes(max_gram_bytes));
  }
  return "";
}

// Adds the layers in order of first use, with their Grams and stages.
void AddLayers(const TensorTable& table, const Survey& survey,
               const std::map<int, std::string>& uncovered, CapturePlan* plan) {
  std::map<std::pair<int64_t, std::vector<size_t>>, int> gram_of;
  std::vector<size_t> complete_at;  // a Gram's place in the forward pass
  for (int entry : survey.order()) {
    if (uncovered.count(entry) > 0) continue;
    const TensorEntry& item = table.entries[static_cast<size_t>(entry)];
    const Use& use = survey.use(entry);
    const auto [gram, added] =
        gram_of.try_emplace({use.inputs, use.sources}, static_cast<int>(plan->gram_inputs.size()));
    if (added) {
      plan->stages.push_back(gram->second);
      plan->gram_inputs.push_back(use.inputs);
      complete_at.push_back(use.last);
    }
    size_t& complete = complete_at[static_cast<size_t>(gram->second)];
    complete = std::min(complete, use.last);
    plan->covered_parameters += item.tensor.numel();
    plan->layers.push_back(
        {entry, item.name, use.outputs, use.inputs, use.transposed, gram->second});
  }
  std::sort(plan->stages.begin(), plan->stages.end(), [&](int a, int b) {
    return complete_at[static_cast<size_t>(a)] < complete_at[static_cast<size_t>(b)];
  });
}

void AddSkipped(const TensorTable& table, const Survey& survey,
                const std::map<int, std::string>& uncovered, CapturePlan* plan) {
  for (size_t i = 0; i < table.entries.size(); ++i) {
    const TensorEntry& item = table.entries[i];
    const int entry = static_cast<int>(i);
    if (!item.is_parameter) continue;
    std::string reason;
    if (auto found = uncovered.find(entry); found != uncovered.end()) {
      reason = found->second;
    } else if (survey.Has(entry)) {
      continue;
    } else if (item.tensor.dim() < 2) {
      reason = "not a matrix (a norm, a bias)";
    } else {
      reason = "not seen in a matrix product of the forward pass";
    }
    plan->skipped.push_back({item.name, reason, item.tensor.numel()});
  }
}

}  // namespace

at::Tensor CoveredLayer::AsMatrix(const at::Tensor& stored) const {
  const at::Tensor matrix =
      transposed ? stored.reshape({inputs, outputs}).t() : stored.reshape({outputs, inputs});
  return matrix.to(at::TensorOptions().dtype(at::kFloat).device(at::kCPU)).contiguous();
}

int64_t CapturePlan::gram_bytes() const {
  int64_t bytes = 0;
  for (int64_t d : gram_inputs) bytes += GramBytes(d);
  return bytes;
}

int64_t CapturePlan::GramBytesOf(const std::vector<int>& grams) const {
  int64_t bytes = 0;
  for (int gram : grams) bytes += GramBytes(gram_inputs[static_cast<size_t>(gram)]);
  return bytes;
}

std::vector<std::vector<int>> CapturePlan::Passes(int64_t max_bytes) const {
  std::vector<std::vector<int>> passes;
  int64_t held = 0;
  for (size_t gram = 0; gram < gram_inputs.size(); ++gram) {
    const int64_t bytes = GramBytes(gram_inputs[gram]);
    if (passes.empty() || bytes > max_bytes - held) {
      passes.emplace_back();
      held = 0;
    }
    passes.back().push_back(static_cast<int>(gram));
    held += bytes;
  }
  return passes;
}

absl::Status RunWatched(Replica& replica, const Batch& batch, const ProductWatcher& watcher) {
  PTQWATCH_RETURN_IF_ERROR(replica.Losses(batch).status());
  if (watcher.problem().empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(StrCat("activation capture: ", watcher.problem()));
}

absl::StatusOr<CapturePlan> PlanCapture(Replica& replica, const Batch& batch,
                                        const LayerSelection& selection, int64_t max_gram_bytes) {
  PTQWATCH_RETURN_IF_ERROR(ProductWatcher::SelfCheck());
  const TensorTable& table = replica.table();
  Survey survey;
  std::map<int, std::string> uncovered;
  {
    ProductWatcher watcher(table, [&](const Product& product) { survey.Add(product); });
    PTQWATCH_RETURN_IF_ERROR(RunWatched(replica, batch, watcher));
    uncovered = watcher.uncovered();
  }
  for (int entry : survey.order()) {
    const TensorEntry& item = table.entries[static_cast<size_t>(entry)];
    std::string reason = WhySkipped(item, entry, survey, uncovered, selection, max_gram_bytes);
    if (!reason.empty()) uncovered[entry] = std::move(reason);
  }

  CapturePlan plan;
  AddLayers(table, survey, uncovered, &plan);
  AddSkipped(table, survey, uncovered, &plan);
  if (plan.layers.empty()) {
    std::string why = "no layer is left to quantize:";
    for (const SkippedLayer& skipped : plan.skipped) {
      why += StrCat(" '", skipped.name, "' (", skipped.reason, ")");
    }
    return absl::FailedPreconditionError(
        StrCat(why, ". See LayerSelection (include, exclude, output_head)."));
  }
  return plan;
}

}  // namespace ptqwatch::internal
