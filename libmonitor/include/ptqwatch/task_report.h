#ifndef PTQWATCH_TASK_REPORT_H_
#define PTQWATCH_TASK_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>

namespace ptqwatch {

/// A metric of a task over its examples, as lm-eval computes it.
struct TaskReport {
  std::string task;
  /// "acc": share of examples whose right choice has the highest log-likelihood, or, if there is
  /// one choice, is what greedy decoding gives. "acc_norm": the same with log-likelihoods over the
  /// characters of the choice. "perplexity": exp(-mean log-likelihood) of single choices.
  std::string metric;
  int64_t examples = 0;
  std::optional<double> value;
  std::optional<double> value_stderr;  ///< absent with fewer than two examples
  /// A quantizer's accuracy lost: (Acc(W) - Acc(W_hat)) / (1 - Acc(W)), and its standard error from
  /// the paired examples. Absent if W gets every example right.
  std::optional<double> degradation_ratio;
  std::optional<double> degradation_stderr;
  friend bool operator==(const TaskReport&, const TaskReport&) = default;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_TASK_REPORT_H_
