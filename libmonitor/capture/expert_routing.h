#ifndef PTQWATCH_CAPTURE_EXPERT_ROUTING_H_
#define PTQWATCH_CAPTURE_EXPERT_ROUTING_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "capture/capture_plan.h"
#include "capture/product_watcher.h"
#include "snapshot/tensor_table.h"

namespace ptqwatch::internal {

/// Where a forward pass of a mixture of experts sends its tokens.
struct ExpertRouting {
  /// The experts that each router has chosen, in order of use: [tokens, k], ascending, int32, on
  /// the model's device.
  std::vector<at::Tensor> choices;
  std::map<WeightKey, int64_t> rows;  ///< that each weight met
};

/// Watches the forward passes of this thread during its lifetime. Excludes other ProductWatchers.
class RoutingWatcher {
 public:
  /// `table` must outlive the watcher.
  explicit RoutingWatcher(const TensorTable& table);
  RoutingWatcher(const RoutingWatcher&) = delete;
  RoutingWatcher& operator=(const RoutingWatcher&) = delete;

  /// Moves out what was seen. Empty if a callback met a problem.
  ExpertRouting Take();

 private:
  ExpertRouting seen_;
  ProductWatcher watcher_;  // last: its callbacks use the others
};

/// Compares the choices of routers in forward passes of the same batches with other weights.
class RoutingChange {
 public:
  void Add(const ExpertRouting& before, const ExpertRouting& after);
  /// The share of choices, one a token and router, that take another set of experts. Absent without
  /// choices, or if the passes made different numbers of them.
  std::optional<double> ratio() const;

 private:
  int64_t choices_ = 0;
  int64_t changed_ = 0;
  bool comparable_ = true;
};

/// The share of the rows met by experts in these passes that go to experts for which `falls_back`,
/// which takes an index into the plan's layers, or to those that are no layers because they met
/// nothing in calibration. Absent if experts meet no rows. Experts are the layers of a stack
/// (StackOf in report/layer_groups.h).
std::optional<double> FallbackShare(const TensorTable& table, const CapturePlan& plan,
                                    absl::Span<const ExpertRouting> passes,
                                    absl::FunctionRef<bool(size_t layer)> falls_back);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CAPTURE_EXPERT_ROUTING_H_
