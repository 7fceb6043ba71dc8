#include "capture/capture_plan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "capture/layer_selection.h"
#include "report/layer_groups.h"

namespace ptqwatch::internal {
namespace {

// How a forward pass uses one weight.
struct Use {
  size_t pass = 0;    // the forward pass described here
  bool empty = true;  // its inputs have no rows
  int64_t outputs = 0;
  int64_t inputs = 0;
  bool transposed = false;
  bool mixed = false;           // the products differ in shape or orientation
  bool vectors = true;          // each product is with a single vector
  bool table = false;           // an embedding, of which rows are looked up and nothing multiplied
  std::vector<size_t> sources;  // index of each input, in order of use
  size_t last = 0;              // index of its last product in the forward pass
};

// Collects the products of forward passes: of each weight, those of the first pass in which its
// inputs have rows.
class Survey {
 public:
  void Add(const Product& product) {
    const WeightKey weight = WeightKey::Of(product);
    auto [found, added] = uses_.try_emplace(weight);
    Use& use = found->second;
    const bool empty = product.input.tensor.numel() == 0;
    if (pass_ == 0) {
      if (added) order_.push_back(weight);
      last_ = weight;
    } else {
      Place(weight, added);
    }
    if (!added && use.pass != pass_) {
      if (empty || !use.empty) return;
      use = {};
    }
    if (use.sources.empty()) {
      use.pass = pass_;
      use.outputs = product.outputs;
      use.inputs = product.inputs;
      use.transposed = product.transposed;
    }
    use.empty &= empty;
    use.vectors &= product.input.tensor.dim() == 1;
    use.mixed |= use.transposed != product.transposed || use.inputs != product.inputs;
    InputIdentity identity(product.input);
    // Empty views of one tensor are alike even if they would differ with rows.
    const auto known =
        empty ? identities_.end() : std::find(identities_.begin(), identities_.end(), identity);
    use.sources.push_back(static_cast<size_t>(known - identities_.begin()));
    if (known == identities_.end()) identities_.push_back(std::move(identity));
    use.last = products_++;
  }
  void EndPass() {
    ++pass_;
    place_ = 0;
  }
  // Call after the last pass, for matrices of which rows are looked up. Does nothing for one that
  // is multiplied, too: its products tell which of its errors matter.
  void AddTable(int parameter, const at::Tensor& matrix) {
    const WeightKey weight{parameter};
    const auto first = uses_.lower_bound(weight);
    if (first != uses_.end() && first->first.parameter == parameter) return;
    Use& use = uses_[weight];
    use.table = true;
    use.empty = false;
    use.outputs = matrix.size(0);
    use.inputs = matrix.size(1);
    order_.insert(order_.begin(), weight);
  }
  // The parameter's elements that were multiplied with inputs.
  int64_t ElementsMet(int parameter) const {
    int64_t elements = 0;
    for (auto it = uses_.lower_bound({parameter}); it != uses_.end(); ++it) {
      if (it->first.parameter != parameter) break;
      if (!it->second.empty) elements += it->second.outputs * it->second.inputs;
    }
    return elements;
  }

  const std::vector<WeightKey>& order() const { return order_; }
  // Ordered by parameter, then by position in the parameter.
  const std::map<WeightKey, Use>& uses() const { return uses_; }
  const Use& use(const WeightKey& weight) const { return uses_.at(weight); }
  const std::optional<WeightKey>& last() const { return last_; }

 private:
  // Puts a weight that earlier passes did not use where they would have used it, so that the order
  // does not depend on which pass used it first.
  void Place(const WeightKey& weight, bool added) {
    if (added) order_.insert(order_.begin() + static_cast<std::ptrdiff_t>(place_), weight);
    const auto at = std::find(order_.begin(), order_.end(), weight);
    place_ = std::max(place_, static_cast<size_t>(at - order_.begin()) + 1);
  }

  std::vector<WeightKey> order_;  // in order of first use
  std::map<WeightKey, Use> uses_;
  std::vector<InputIdentity> identities_;
  size_t pass_ = 0;
  size_t place_ = 0;  // in order_: after the weights that this pass has used
  size_t products_ = 0;
  std::optional<WeightKey> last_;  // of the first pass
};

// "NAME[2]", "NAME[2:4]", or "NAME[2][0:64]" within one element of the first dimension.
std::string PartName(std::string name, at::IntArrayRef sizes, int64_t first, int64_t elements) {
  while (!sizes.empty()) {
    int64_t row = 1;
    for (int64_t size : sizes.slice(1)) row *= size;
    const int64_t index = first / row;
    const int64_t offset = first % row;
    if (offset == 0 && elements % row == 0) {
      const int64_t count = elements / row;
      return count == 1 ? StrCat(name, "[", index, "]")
                        : StrCat(name, "[", index, ":", index + count, "]");
    }
    if (offset + elements > row) break;
    name += StrCat("[", index, "]");
    sizes = sizes.slice(1);
    first = offset;
  }
  return StrCat(name, "[elements ", first, ":", first + elements, "]");
}

std::string NameOf(const TensorTable& table, const WeightKey& weight, const Use& use) {
  const TensorEntry& item = table.entries[static_cast<size_t>(weight.parameter)];
  if (!weight.part) return item.name;
  return PartName(item.name, item.tensor.sizes(), weight.first, use.outputs * use.inputs);
}

std::vector<std::string> NamesOf(const TensorEntry& item) {
  std::vector<std::string> names = {item.name};
  names.insert(names.end(), item.aliases.begin(), item.aliases.end());
  return names;
}

std::vector<std::string> NamesOf(const TensorTable& table, const WeightKey& weight,
                                 const Use& use) {
  const TensorEntry& item = table.entries[static_cast<size_t>(weight.parameter)];
  std::vector<std::string> names = NamesOf(item);
  if (weight.part) names.push_back(NameOf(table, weight, use));
  return names;
}

std::string Megabytes(int64_t bytes) { return StrCat(bytes / 1'000'000, " MB"); }

// Marks parameters whose parts overlap and therefore cannot be separated.
void NoteOverlaps(const Survey& survey, std::map<int, std::string>& uncovered) {
  std::optional<WeightKey> before;
  int64_t end = 0;
  for (const auto& [weight, use] : survey.uses()) {
    const bool same = before && before->parameter == weight.parameter;
    if (same && (!before->part || weight.first < end)) {
      uncovered.emplace(weight.parameter, "its multiplied parts overlap");
    }
    end = weight.first + use.outputs * use.inputs;
    before = weight;
  }
}

// Marks parameters without a product that go into an unknown operator.
void NoteHidden(const Survey& survey, const std::map<int, std::string>& takers,
                std::map<int, std::string>& uncovered) {
  for (const auto& [parameter, taker] : takers) {
    const auto use = survey.uses().lower_bound({parameter});
    const bool used = use != survey.uses().end() && use->first.parameter == parameter;
    // As spectral_norm does, which multiplies with a vector to scale the weight that is used.
    if (used && !use->second.vectors) continue;
    uncovered.emplace(parameter, StrCat("goes into ", taker, ", which is not seen through"));
  }
}

// Returns whether a weight, or a part of it, may be a layer that met no input so far.
bool MayHaveMore(const TensorTable& table, const Survey& survey,
                 const std::map<int, std::string>& uncovered, const std::set<int>& tables,
                 const std::map<int, std::string>& takers) {
  for (const int parameter : FloatingParameters(table)) {
    const at::Tensor& tensor = table.entries[static_cast<size_t>(parameter)].tensor;
    if (tensor.dim() < 2 || uncovered.count(parameter) > 0 || tables.contains(parameter) ||
        takers.count(parameter) > 0) {
      continue;
    }
    if (survey.ElementsMet(parameter) < tensor.numel()) return true;
  }
  return false;
}

// Why a weight is skipped.
struct Reason {
  std::string text = {};  // empty: it is quantized
  bool unseen = false;    // ptqwatch cannot measure it, though it would be quantized
};

Reason WhySkipped(const TensorTable& table, const WeightKey& weight, const Survey& survey,
                  const std::map<int, std::string>& uncovered, const std::set<int>& tables,
                  const std::set<int>& routers, const LayerSelection& selection,
                  int64_t max_gram_bytes) {
  const Use& use = survey.use(weight);
  const auto other = uncovered.find(weight.parameter);
  const bool looked_up = tables.contains(weight.parameter);
  if (use.table && !selection.embeddings) return {std::string(kEmbedding)};
  if (std::string reason = WhyNotSelected(selection, NamesOf(table, weight, use));
      !reason.empty()) {
    return {reason};
  }
  if (weight == survey.last() && !selection.output_head) {
    return {looked_up ? "output head, tied to an embedding" : "output head"};
  }
  if (!selection.routers && weight != survey.last() && routers.contains(weight.parameter)) {
    return {std::string(kRouter)};
  }
  if (other != uncovered.end()) return {other->second, true};
  if (looked_up && !selection.embeddings && weight != survey.last()) {
    return {StrCat("also used as: ", kEmbedding)};
  }
  if (use.mixed) return {"used in both orientations, or as matrices of different shapes", true};
  if (GramBytes(use.inputs) > max_gram_bytes) {
    return {StrCat("the Gram matrix of its ", use.inputs, " inputs takes ",
                   Megabytes(GramBytes(use.inputs)), ", max_gram_bytes allows ",
                   Megabytes(max_gram_bytes)),
            true};
  }
  return {};
}

// The entry of the layer's weight in the replica.
int EntryOf(Replica& replica, const WeightKey& weight, const Use& use) {
  if (!weight.part) return weight.parameter;
  std::vector<int64_t> stored = {use.outputs, use.inputs};
  if (use.transposed) std::swap(stored[0], stored[1]);
  return replica.AddPart(weight.parameter, weight.first, std::move(stored),
                         NameOf(replica.table(), weight, use));
}

// Adds the layers in order of first use, with their Grams and stages.
void AddLayers(Replica& replica, const Survey& survey, const std::map<WeightKey, Reason>& skipped,
               CapturePlan* plan) {
  std::map<std::pair<int64_t, std::vector<size_t>>, int> gram_of;
  std::vector<size_t> complete_at;  // per Gram: index of its completing product
  for (const WeightKey& weight : survey.order()) {
    if (skipped.count(weight) > 0) continue;
    const Use& use = survey.use(weight);
    const auto [gram, added] =
        gram_of.try_emplace({use.inputs, use.sources}, static_cast<int>(plan->gram_inputs.size()));
    if (added) {
      plan->stages.push_back(gram->second);
      plan->gram_inputs.push_back(use.inputs);
      complete_at.push_back(use.last);
    }
    size_t& complete = complete_at[static_cast<size_t>(gram->second)];
    complete = std::min(complete, use.last);
    plan->covered_parameters += use.outputs * use.inputs;
    plan->layers.push_back({.entry = EntryOf(replica, weight, use),
                            .weight = weight,
                            .name = NameOf(replica.table(), weight, use),
                            .outputs = use.outputs,
                            .inputs = use.inputs,
                            .transposed = use.transposed,
                            .table = use.table,
                            .gram = gram->second});
  }
  std::sort(plan->stages.begin(), plan->stages.end(), [&](int a, int b) {
    return complete_at[static_cast<size_t>(a)] < complete_at[static_cast<size_t>(b)];
  });
}

// Adds what is skipped of a parameter: all of it, some parts, or the rest beside the parts.
void AddSkippedOf(const TensorTable& table, int parameter, const Survey& survey,
                  const std::map<int, std::string>& uncovered, const std::set<int>& tables,
                  const std::map<WeightKey, Reason>& skipped, const LayerSelection& selection,
                  CapturePlan* plan) {
  const TensorEntry& item = table.entries[static_cast<size_t>(parameter)];
  const auto add = [plan](std::string name, const Reason& why, int64_t elements) {
    plan->skipped.push_back({std::move(name), why.text, elements});
    if (why.unseen) plan->unseen.push_back(plan->skipped.back());
  };
  int64_t rest = item.tensor.numel();
  bool used = false;
  for (auto it = survey.uses().lower_bound({parameter}); it != survey.uses().end(); ++it) {
    const auto& [weight, use] = *it;
    if (weight.parameter != parameter) break;
    used = true;
    const int64_t elements = use.outputs * use.inputs;
    const auto why = skipped.find(weight);
    // Overlapping parts are not listed separately.
    if (why != skipped.end() && (!weight.part || uncovered.count(parameter) == 0)) {
      add(NameOf(table, weight, use), why->second, elements);
      rest -= elements;
    } else if (why == skipped.end()) {
      rest -= elements;
    }
  }
  if (rest <= 0) return;
  const bool selected = WhyNotSelected(selection, NamesOf(item)).empty();
  if (const auto found = uncovered.find(parameter); found != uncovered.end()) {
    add(item.name, {found->second, selected}, rest);
  } else if (tables.contains(parameter)) {
    add(StrCat(item.name, " (rest)"), {std::string(kEmbedding)}, rest);
  } else if (used) {
    add(StrCat(item.name, " (rest)"), {"no part of it is multiplied", selected}, rest);
  } else if (item.tensor.dim() < 2) {
    add(item.name, {std::string(kNotAMatrix)}, rest);
  } else {
    add(item.name, {"no operator of the forward pass takes it", selected}, rest);
  }
}

}  // namespace

at::Tensor CoveredLayer::AsMatrix(const at::Tensor& stored, at::Device device) const {
  const at::Tensor matrix =
      transposed ? stored.reshape({inputs, outputs}).t() : stored.reshape({outputs, inputs});
  return matrix.to(at::TensorOptions().dtype(at::kFloat).device(device)).contiguous();
}

int64_t CapturePlan::GramBytesOf(const std::vector<int>& grams) const {
  int64_t bytes = 0;
  for (int gram : grams) bytes += GramBytes(gram_inputs[static_cast<size_t>(gram)]);
  return bytes;
}

std::optional<UnseenWeights> CapturePlan::Unseen() const {
  if (unseen.empty()) return std::nullopt;
  int64_t parameters = 0;
  for (const SkippedLayer& layer : unseen) parameters += layer.parameters;
  const auto largest = std::max_element(
      unseen.begin(), unseen.end(),
      [](const SkippedLayer& a, const SkippedLayer& b) { return a.parameters < b.parameters; });
  return UnseenWeights{.ratio = static_cast<double>(parameters) /
                                static_cast<double>(parameters + covered_parameters),
                       .largest = largest->name,
                       .reason = largest->reason};
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

absl::StatusOr<CapturePlan> PlanCapture(Replica& replica, absl::Span<const Batch> batches,
                                        const LayerSelection& selection, int64_t max_gram_bytes) {
  PTQWATCH_RETURN_IF_ERROR(ProductWatcher::SelfCheck());
  const TensorTable& table = replica.table();
  Survey survey;
  std::map<int, std::string> uncovered;
  std::map<int, std::string> takers;
  std::set<int> tables;
  std::set<int> routers;
  for (const Batch& batch : batches.first(std::min(kMostSurveyed, batches.size()))) {
    ProductWatcher watcher(table, [&](const Product& product) { survey.Add(product); });
    PTQWATCH_RETURN_IF_ERROR(RunWatched(replica, batch, watcher));
    survey.EndPass();
    uncovered.merge(watcher.uncovered());
    tables.insert(watcher.tables().begin(), watcher.tables().end());
    routers.insert(watcher.routers().begin(), watcher.routers().end());
    takers.insert(watcher.takers().begin(), watcher.takers().end());
    if (!MayHaveMore(table, survey, uncovered, tables, takers)) break;
  }
  for (const int parameter : tables) {
    survey.AddTable(parameter, table.entries[static_cast<size_t>(parameter)].tensor);
  }
  NoteHidden(survey, takers, uncovered);
  NoteOverlaps(survey, uncovered);
  std::map<WeightKey, Reason> left_out;
  for (const WeightKey& weight : survey.order()) {
    Reason reason =
        WhySkipped(table, weight, survey, uncovered, tables, routers, selection, max_gram_bytes);
    if (!reason.text.empty()) left_out.emplace(weight, std::move(reason));
  }

  CapturePlan plan;
  plan.routed = !routers.empty();
  AddLayers(replica, survey, left_out, &plan);
  for (size_t i = 0; i < table.entries.size(); ++i) {
    if (!table.entries[i].is_parameter) continue;
    AddSkippedOf(table, static_cast<int>(i), survey, uncovered, tables, left_out, selection, &plan);
  }
  if (plan.layers.empty()) {
    std::string why;
    for (const SkippedLayer& skipped : plan.skipped) {
      why += StrCat(why.empty() ? "" : "; ", "'", skipped.name, "': ", skipped.reason);
    }
    return absl::FailedPreconditionError(
        StrCat("no layer is left to quantize (", why,
               "). See LayerSelection (include, exclude, output_head, embeddings)."));
  }
  return plan;
}

QuantizerSpec SpecWithRows(std::string_view layer, int64_t inputs, QuantizerSpec spec,
                           int64_t rows) {
  if (spec.min_tokens_ratio <= 0 || StackOf(layer).empty()) return spec;
  const double needed =
      std::ceil(std::max(kFewestExpertRows, kFewestExpertShare * static_cast<double>(rows)));
  // Half a row less, so that rounding does not ask for another one.
  spec.min_tokens_ratio =
      std::max(spec.min_tokens_ratio, (needed - 0.5) / static_cast<double>(inputs));
  return spec;
}

}  // namespace ptqwatch::internal
