#include "capture/route_tracker.h"

#include <utility>

namespace ptqwatch::internal {
std::optional<RouteTracker::Route> RouteTracker::At(const at::Tensor& tensor) const {
  if (!tensor.defined() || !tensor.has_storage() || tensor.dim() == 0) return std::nullopt;
  const auto found = places_.find(tensor.storage().unsafeGetStorageImpl());
  if (found == places_.end() || found->second.storage.expired()) return std::nullopt;
  const Route& route = found->second.route;
  if (tensor.size(-1) != route.outputs) return std::nullopt;
  return route;
}

std::optional<RouteTracker::Route> RouteTracker::Find(
    c10::ArrayRef<const c10::IValue> inputs) const {
  if (places_.empty()) return std::nullopt;
  std::optional<Route> route;
  at::Tensor on;
  for (const c10::IValue& input : inputs) {
    if (!input.isTensor()) continue;
    if (const auto at = At(input.toTensor()); at && !route) {
      route = at;
      on = input.toTensor();
    }
  }
  if (!route) return std::nullopt;
  // A sum with other activations, such as a residual stream, is no score.
  for (const c10::IValue& input : inputs) {
    if (!input.isTensor()) continue;
    const at::Tensor& other = input.toTensor();
    if (other.defined() && other.is_floating_point() && other.sizes() == on.sizes() && !At(other)) {
      return std::nullopt;
    }
  }
  return route;
}

void RouteTracker::Note(const Route& route, const at::Tensor& output) {
  if (!output.defined() || !output.has_storage() || output.dim() == 0) return;
  if (output.size(-1) != route.outputs) return;
  std::erase_if(places_, [](const auto& item) { return item.second.storage.expired(); });
  places_.insert_or_assign(
      output.storage().unsafeGetStorageImpl(),
      Place{c10::weak_intrusive_ptr<c10::StorageImpl>(output.storage().getWeakStorageImpl()),
            route});
}

bool RouteTracker::NoteChoice(const at::Tensor& scores) {
  const auto route = At(scores);
  if (route) routers_.insert(route->entry);
  return route.has_value();
}

}  // namespace ptqwatch::internal
