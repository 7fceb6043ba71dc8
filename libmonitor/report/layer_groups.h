#ifndef PTQWATCH_REPORT_LAYER_GROUPS_H_
#define PTQWATCH_REPORT_LAYER_GROUPS_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// A row of a report: a layer, or a stack of equal layers such as the experts of a mixture.
struct GroupedLayers {
  std::string name;
  std::vector<size_t> members;  ///< ascending positions in the list of layers

  bool stacked() const { return members.size() > 1; }
};

/// Returns the name of the stack that a layer or parameter belongs to, or "" if it belongs to none.
/// A stack consists of the parts of one parameter ("moe.w1[3]" belongs to "moe.w1", and
/// "moe.w13[3][0:64]" to "moe.w13[0:64]"), or of parameters whose names differ only in the number
/// of an expert ("mlp.experts.3.w1.weight" belongs to "mlp.experts.*.w1.weight"): in Hugging Face's
/// names, also "experts.expert_3", and Megatron's "experts.linear_fc1.weight3".
std::string StackOf(std::string_view name);

/// The fewest layers that share a row.
inline constexpr size_t kLeastStack = 8;

/// Groups layers by stack, in the order of first members. The layers of a stack of fewer than
/// kLeastStack remain single. `name_of(i)` is the name of layer i of `count`. Time: linear.
std::vector<GroupedLayers> GroupLayers(size_t count,
                                       const std::function<std::string_view(size_t)>& name_of);

/// Groups skipped layers: a stack has one row for each reason, with the sum of its parameters.
std::vector<SkippedLayer> GroupSkipped(const std::vector<SkippedLayer>& skipped);

/// How many layers of a stack have a row of their own: those with the largest values.
inline constexpr size_t kNamedOfStack = 3;

/// Returns the members of `group` with the largest values, largest first, at most kNamedOfStack.
/// Leaves out members whose value is not finite.
std::vector<size_t> LargestMembers(const GroupedLayers& group,
                                   const std::function<double(size_t)>& value_of);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_REPORT_LAYER_GROUPS_H_
