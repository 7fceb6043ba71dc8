#include "watch_state.h"

#include <limits>
#include <utility>

#include "report_table.h"

namespace ptqwatch::internal {
namespace {

double OrNan(const std::optional<double>& value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());
}

}  // namespace

void WatchState::Add(AnalyzedReport analyzed) {
  const Report& report = analyzed.report;
  while (!points.empty() && points.back().step >= report.step) points.pop_back();
  TrendPoint point{.step = report.step,
                   .phase = report.lr_phase,
                   .learning_rate = OrNan(report.learning_rate),
                   .loss = OrNan(report.probe_loss_nats),
                   .trace = OrNan({}),
                   .top_eigenvalue = OrNan({}),
                   .error_ratios = {}};
  if (report.curvature) {
    curvature = report.curvature;
    point.trace = OrNan(report.curvature->trace);
    point.top_eigenvalue = OrNan(report.curvature->top_eigenvalue);
  } else if (!points.empty()) {
    // Curvature is not measured at every snapshot; in between, the line continues.
    point.trace = points.back().trace;
    point.top_eigenvalue = points.back().top_eigenvalue;
  }
  const std::vector<std::string> names = QuantizerNames(report.quantization);
  for (size_t i = 0; i < names.size(); ++i) {
    point.error_ratios[names[i]] = OrNan(report.quantization[i].error_ratio);
  }
  points.push_back(std::move(point));
  if (points.size() > kMaxPoints) points.pop_front();
  newest = std::move(analyzed);
}

void WatchState::AddEvent(TimedText event) {
  events.push_front(std::move(event));
  if (events.size() > kMaxEvents) events.pop_back();
}

void WatchState::ForgetRun() {
  points.clear();
  newest.reset();
  curvature.reset();
  layers.clear();
  steps_per_second.reset();
}

}  // namespace ptqwatch::internal
