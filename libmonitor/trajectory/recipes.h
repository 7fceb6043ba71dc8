#ifndef PTQWATCH_TRAJECTORY_RECIPES_H_
#define PTQWATCH_TRAJECTORY_RECIPES_H_

#include <string_view>

#include "absl/types/span.h"

namespace ptqwatch::internal {

/// How the learning rate of a published run went. docs/recipes.md is this table.
struct Recipe {
  std::string_view name;
  std::string_view model;      ///< on the hub
  std::string_view revisions;  ///< some of them, separated by spaces: one of each branch at least
  /// EXPRESSION or BRANCH=EXPRESSION (trajectory/lr_schedule.h), separated by spaces. Branches are
  /// those of the revisions' names, and "" for names without one.
  std::string_view schedules;
  std::string_view tokens_per_step;
  std::string_view source;  ///< of every number, in Markdown
};

/// Ordered by family and size.
absl::Span<const Recipe> Recipes();

/// Null if no recipe has this name.
const Recipe* FindRecipe(std::string_view name);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAJECTORY_RECIPES_H_
