#include "capture/expert_routing.h"

#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "ATen/ops/sort.h"
#include "report/layer_groups.h"

namespace ptqwatch::internal {

RoutingWatcher::RoutingWatcher(const TensorTable& table)
    : watcher_(
          table,
          [this](const Product& product) {
            if (product.inputs == 0) return;
            seen_.rows[WeightKey::Of(product)] += product.input.tensor.numel() / product.inputs;
          },
          [this](const at::Tensor& experts) {
            const at::Tensor sorted = std::get<0>(experts.to(at::kInt).sort(-1));
            seen_.choices.push_back(sorted.reshape({-1, sorted.size(-1)}));
          }) {}

ExpertRouting RoutingWatcher::Take() {
  ExpertRouting seen = std::exchange(seen_, {});
  return watcher_.problem().empty() ? std::move(seen) : ExpertRouting();
}

void RoutingChange::Add(const ExpertRouting& before, const ExpertRouting& after) {
  comparable_ = comparable_ && before.choices.size() == after.choices.size();
  for (size_t router = 0; comparable_ && router < before.choices.size(); ++router) {
    const at::Tensor& one = before.choices[router];
    const at::Tensor& other = after.choices[router];
    comparable_ = one.sizes() == other.sizes();
    if (!comparable_ || one.numel() == 0) continue;
    choices_ += one.size(0);
    changed_ += one.ne(other).any(-1).sum().item<int64_t>();
  }
}

std::optional<double> RoutingChange::ratio() const {
  if (!comparable_ || choices_ == 0) return std::nullopt;
  return static_cast<double>(changed_) / static_cast<double>(choices_);
}

std::optional<double> FallbackShare(const TensorTable& table, const CapturePlan& plan,
                                    absl::Span<const ExpertRouting> passes,
                                    absl::FunctionRef<bool(size_t layer)> falls_back) {
  std::map<WeightKey, size_t> layers;
  std::set<std::string> stacks;
  std::set<int> stacked;  // parameters of which parts are layers
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    layers.emplace(plan.layers[i].weight, i);
    std::string stack = StackOf(plan.layers[i].name);
    if (stack.empty()) continue;
    stacks.insert(std::move(stack));
    if (plan.layers[i].weight.part) stacked.insert(plan.layers[i].weight.parameter);
  }
  int64_t all = 0;
  int64_t without = 0;
  for (const ExpertRouting& pass : passes) {
    for (const auto& [weight, rows] : pass.rows) {
      const auto layer = layers.find(weight);
      const bool known = layer != layers.end();
      const std::string& name = table.entries[static_cast<size_t>(weight.parameter)].name;
      const bool expert = known         ? !StackOf(plan.layers[layer->second].name).empty()
                          : weight.part ? stacked.contains(weight.parameter)
                                        : stacks.contains(StackOf(name));
      if (!expert) continue;
      all += rows;
      if (!known || falls_back(layer->second)) without += rows;
    }
  }
  if (all == 0) return std::nullopt;
  return static_cast<double>(without) / static_cast<double>(all);
}

}  // namespace ptqwatch::internal
