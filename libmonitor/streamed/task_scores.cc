#include "streamed/task_scores.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "probes/paired_loss.h"

namespace ptqwatch::internal {
namespace {

constexpr std::string_view kAccuracy = "acc";
constexpr std::string_view kNormedAccuracy = "acc_norm";
constexpr std::string_view kPerplexity = "perplexity";

using Values = std::vector<double>;

// The values of a metric, whose mean it is; of perplexity, the log-likelihoods.
struct MetricValues {
  std::string_view task;
  std::string_view metric;
  Values values = {};
};

// The position of the greatest `score`; the first on a tie.
template <typename Score>
int64_t BestChoice(const TaskItem& item, Score score) {
  size_t best = 0;
  for (size_t i = 1; i < item.choices.size(); ++i) {
    if (score(i) > score(best)) best = i;
  }
  return static_cast<int64_t>(best);
}

// Two metrics of each task, "acc" first.
std::vector<MetricValues> MetricsOf(absl::Span<const TaskItem> items,
                                    absl::Span<const ItemScores> scores) {
  std::vector<MetricValues> metrics;
  std::map<std::string_view, size_t> place;
  for (size_t i = 0; i < items.size(); ++i) {
    const TaskItem& item = items[i];
    const ItemScores& own = scores[i];
    const bool single = item.choices.size() == 1;
    const auto [found, is_new] = place.emplace(item.task, metrics.size());
    if (is_new) {
      metrics.push_back({item.task, kAccuracy});
      metrics.push_back({item.task, single ? kPerplexity : kNormedAccuracy});
    }
    Values& first = metrics[found->second].values;
    Values& second = metrics[found->second + 1].values;
    if (single) {
      first.push_back(own[0].greedy ? 1 : 0);
      second.push_back(own[0].log_likelihood);
      continue;
    }
    const auto sum = [&](size_t choice) { return own[choice].log_likelihood; };
    const auto normed = [&](size_t choice) {
      return sum(choice) / static_cast<double>(item.choices[choice].characters);
    };
    first.push_back(BestChoice(item, sum) == item.gold ? 1 : 0);
    second.push_back(BestChoice(item, normed) == item.gold ? 1 : 0);
  }
  return metrics;
}

RatioEstimate MeanOf(const Values& values) {
  return EstimateRatio(values, Values(values.size(), 1.0));
}

Values Differences(const Values& a, const Values& b) {
  Values result(a.size());
  std::transform(a.begin(), a.end(), b.begin(), result.begin(), std::minus<>());
  return result;
}

// Examples of several tasks, one element a task.
struct TaskSums {
  std::vector<Values> numerators = {};
  std::vector<Values> denominators = {};
};

// sum_t mean(x_t) / sum_t mean(y_t) over tasks t. As in EstimateRatio the residuals x - r y carry
// the error; tasks are strata, so each adds the variance of its own mean residual.
RatioEstimate EstimateOverTasks(const TaskSums& sums) {
  double top = 0;
  double bottom = 0;
  for (size_t t = 0; t < sums.numerators.size(); ++t) {
    top += MeanOf(sums.numerators[t]).value;
    bottom += MeanOf(sums.denominators[t]).value;
  }
  RatioEstimate estimate{.value = top / bottom};
  double variance = 0;
  for (size_t t = 0; t < sums.numerators.size(); ++t) {
    Values rest = sums.numerators[t];
    for (size_t i = 0; i < rest.size(); ++i) rest[i] -= estimate.value * sums.denominators[t][i];
    const double error = MeanOf(rest).stderr_value;
    variance += error * error;
  }
  estimate.stderr_value = std::sqrt(variance) / std::abs(bottom);
  return estimate;
}

TaskReport TaskReportOf(const MetricValues& metric) {
  TaskReport report;
  report.task = metric.task;
  report.metric = metric.metric;
  report.examples = static_cast<int64_t>(metric.values.size());
  RatioEstimate mean = MeanOf(metric.values);
  if (metric.metric == kPerplexity) {
    mean.value = std::exp(-mean.value);
    mean.stderr_value *= mean.value;
  }
  SetIfFinite(mean, report.value, report.value_stderr);
  return report;
}

}  // namespace

TaskScores ScoreTasks(absl::Span<const TaskItem> items, absl::Span<const ItemScores> scores) {
  TaskScores result;
  TaskSums right;
  for (const MetricValues& metric : MetricsOf(items, scores)) {
    result.tasks.push_back(TaskReportOf(metric));
    if (metric.metric != kAccuracy) continue;
    right.denominators.emplace_back(metric.values.size(), 1.0);
    right.numerators.push_back(metric.values);
  }
  SetIfFinite(EstimateOverTasks(right), result.accuracy_ratio, result.accuracy_stderr);
  return result;
}

TaskScores CompareTasks(absl::Span<const TaskItem> items, absl::Span<const ItemScores> full,
                        absl::Span<const ItemScores> quantized) {
  TaskScores result = ScoreTasks(items, quantized);
  const std::vector<MetricValues> before = MetricsOf(items, full);
  const std::vector<MetricValues> after = MetricsOf(items, quantized);
  TaskSums sums;
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i].metric == kPerplexity) continue;
    Values lost = Differences(before[i].values, after[i].values);
    Values wrong = Differences(Values(lost.size(), 1.0), before[i].values);
    SetIfFinite(EstimateRatio(lost, wrong), result.tasks[i].degradation_ratio,
                result.tasks[i].degradation_stderr);
    if (before[i].metric != kAccuracy) continue;
    sums.numerators.push_back(std::move(lost));
    sums.denominators.push_back(std::move(wrong));
  }
  SetIfFinite(EstimateOverTasks(sums), result.degradation_ratio, result.degradation_stderr);
  return result;
}

}  // namespace ptqwatch::internal
