#ifndef PTQWATCH_CAPTURE_ROUTE_TRACKER_H_
#define PTQWATCH_CAPTURE_ROUTE_TRACKER_H_

#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"

namespace ptqwatch::internal {

/// Follows the outputs of products through further operators to a top-k: a matrix whose output
/// chooses experts is a router. Only tensors whose last dimension is as long as the output are
/// followed. Not thread-safe.
class RouteTracker {
 public:
  /// The output of a product with a parameter, or a tensor made from it.
  struct Route {
    int entry = 0;        ///< the parameter's, in the table
    int64_t outputs = 0;  ///< length of the last dimension
  };

  /// The route that one of an operator's inputs is on, unless it is combined with another tensor of
  /// its shape that is on none.
  std::optional<Route> Find(c10::ArrayRef<const c10::IValue> inputs) const;
  void Note(const Route& route, const at::Tensor& output);
  /// `scores` go into a top-k. Returns whether they are on a route.
  bool NoteChoice(const at::Tensor& scores);

  /// Parameters whose outputs went into a top-k.
  const std::set<int>& routers() const { return routers_; }

 private:
  struct Place {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // keeps the key unique
    Route route;
  };
  std::optional<Route> At(const at::Tensor& tensor) const;

  std::unordered_map<const c10::StorageImpl*, Place> places_;
  std::set<int> routers_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CAPTURE_ROUTE_TRACKER_H_
