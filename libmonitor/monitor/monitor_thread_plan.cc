// The plans of snapshots, and when there is time for more of them.
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "handover/schedule.h"
#include "monitor/monitor_thread.h"

namespace ptqwatch::internal {

Plan MonitorThread::NextPlan(const Snapshot& filled) {
  return core_->budget->NextPlan({.interval_seconds = IntervalSeconds(core_->publisher->status()),
                                  .additional = filled.header.additional,
                                  .at_finish = filled.header.trigger == SnapshotTrigger::kFinish,
                                  .seconds_to_finish = SecondsToFinish(filled.header.info.step),
                                  .job_waits = core_->jobs->under_way()});
}

std::optional<double> MonitorThread::SecondsToFinish(int64_t step) {
  const std::chrono::nanoseconds now = core_->clock->Monotonic();
  MutexLock lock(mutex_);
  if (!finishing_ || finishing_->last_step != step) return std::nullopt;
  return InSeconds(finishing_->last - now);
}

bool MonitorThread::WorthMeasuringAgain(int64_t step) {
  const std::optional<double> seconds = SecondsToFinish(step);
  if (!seconds) return false;
  const std::optional<Plan> could = core_->budget->LastPlan(*seconds);
  const std::shared_ptr<const AnalyzedReport> newest = core_->publisher->latest();
  if (!could || newest == nullptr || newest->report.step != step || !newest->report.plan) {
    return false;
  }
  const Plan& was = *newest->report.plan;
  return was.probe_batches < could->probe_batches ||
         was.calibration_batches < could->calibration_batches ||
         was.curvature_sequences < could->curvature_sequences;
}

double MonitorThread::IntervalSeconds(const MonitorStatus& status) const {
  return SecondsBetween(core_->schedule, status.every, status.step.value_or(0),
                        status.seconds_a_step);
}

void MonitorThread::AdaptPlan(const Plan& plan, const Measured& measured, int64_t step) {
  // The work of a snapshot that failed, or that Finish shortened, says nothing about its cost.
  for (const ProbeResult& result : measured.results) {
    using Kind = ProbeOutcome::Kind;
    const bool measured_all =
        result.outcome.kind == Kind::kOk || result.outcome.kind == Kind::kDisabled;
    if (!measured_all && !measured.cut_short) return;
  }
  const std::optional<std::string> changed =
      core_->budget->Learn({plan, measured.work_seconds, measured.cut_short},
                           IntervalSeconds(core_->publisher->status()));
  if (ranks_.value_or(1) > 1 || core_->slot->sharded()) StretchGrid(measured, step);
  if (!changed) return;
  Log(Severity::kInfo, StrCat("later snapshots: ", *changed));
  PublishEvent(Event::Kind::kPlanChanged, Severity::kInfo, step, *changed);
}

void MonitorThread::StretchGrid(const Measured& measured, int64_t step) {
  const WorkBudget& budget = *core_->budget;
  if (budget.full_speed()) return;
  double work = 0;
  if (budget.planner().fixed()) {
    for (const auto& [probe, seconds] : measured.work_seconds) work += seconds;
  } else {
    work = budget.planner().model().Mean(budget.planner().plan());
  }
  const auto changed =
      grid_.Learn(work / budget.long_run_share(), IntervalSeconds(core_->publisher->status()));
  core_->page->switches.stretch.store(grid_.stretch(), std::memory_order_relaxed);
  if (!changed) return;
  Log(Severity::kInfo, *changed);
  PublishEvent(Event::Kind::kPlanChanged, Severity::kInfo, step, *changed);
}

}  // namespace ptqwatch::internal
