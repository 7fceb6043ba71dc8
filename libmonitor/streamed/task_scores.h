#ifndef PTQWATCH_STREAMED_TASK_SCORES_H_
#define PTQWATCH_STREAMED_TASK_SCORES_H_

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "models/task_file.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

/// A model's score of a choice.
struct ChoiceScore {
  double log_likelihood = 0;  ///< nats, summed over the tokens of the continuation
  bool greedy = false;        ///< whether each of them has the highest logit (the first on a tie)
};
/// The scores of an item's choices.
using ItemScores = std::vector<ChoiceScore>;

/// The metrics of all tasks, in the order of the tasks' first items.
struct TaskScores {
  std::vector<TaskReport> tasks = {};
  /// The mean of the tasks' "acc", each of the same weight. Its error is that of independent tasks.
  std::optional<double> accuracy_ratio = {};
  std::optional<double> accuracy_stderr = {};
  /// (Acc(W) - Acc(W_hat)) / (1 - Acc(W)) of these means, with its paired standard error.
  std::optional<double> degradation_ratio = {};
  std::optional<double> degradation_stderr = {};
};

/// The metrics of a model, by lm-eval's rules: several choices give "acc" and "acc_norm", one gives
/// "acc" and "perplexity" (TaskReport). Standard errors are sample standard deviations over
/// sqrt(n); perplexity's follows from that of the mean log-likelihood by the delta method.
/// REQUIRES: finite scores of every choice of `items`.
TaskScores ScoreTasks(absl::Span<const TaskItem> items, absl::Span<const ItemScores> scores);

/// The same of a quantized model, with degradations against the `full` precision.
TaskScores CompareTasks(absl::Span<const TaskItem> items, absl::Span<const ItemScores> full,
                        absl::Span<const ItemScores> quantized);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_STREAMED_TASK_SCORES_H_
