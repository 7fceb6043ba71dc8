// What snapshots are measured with, and when there is time for more of them.
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/strings.h"
#include "monitor/monitor_thread.h"
#include "probes/averaging_probe.h"
#include "probes/mixed_precision_probe.h"
#include "trainer/schedule.h"

namespace ptqwatch::internal {
namespace {

// A first report, and a curvature measurement that Finish adds, should take no longer than this.
constexpr double kSoonSeconds = 15;
// Of the time between additional snapshots, for all that could be measured.
constexpr double kShareForAdditional = 0.9;

}  // namespace

Plan MonitorThread::NextPlan(const Snapshot& filled) {
  Planner& planner = parts_.planner;
  if (!parts_.adapt_plan) return FullPlan(planner.range());
  if (const auto seconds = SecondsToFinish(filled.header.info.step)) {
    if (const auto last = planner.Last(*seconds)) return *last;
  }
  if (filled.header.additional) return AdditionalPlan();
  Plan plan = planner.Next(kSoonSeconds * parts_.pace->governor().share());
  spare_.MakeRoom(planner.costs(), IntervalSeconds(parts_.publisher->status()), plan);
  if (filled.header.trigger == SnapshotTrigger::kFinish && plan.curvature_sequences == 0 &&
      CurvatureSeconds(planner.plan(), planner.costs()) <= kSoonSeconds) {
    plan.curvature_sequences = planner.plan().curvature_sequences;
  }
  return plan;
}

std::optional<double> MonitorThread::SecondsToFinish(int64_t step) {
  const std::chrono::nanoseconds now = parts_.context.clock->Monotonic();
  MutexLock lock(mutex_);
  if (!finishing_ || finishing_->last_step != step) return std::nullopt;
  return std::chrono::duration<double>(finishing_->last - now).count();
}

bool MonitorThread::WorthMeasuringAgain(int64_t step) {
  const std::optional<double> seconds = SecondsToFinish(step);
  if (!parts_.adapt_plan || !seconds) return false;
  const std::optional<Plan> could = parts_.planner.Last(*seconds);
  const std::shared_ptr<const AnalyzedReport> newest = parts_.publisher->latest();
  if (!could || newest == nullptr || newest->report.step != step || !newest->report.plan) {
    return false;
  }
  const Plan& was = *newest->report.plan;
  return was.probe_batches < could->probe_batches ||
         was.calibration_batches < could->calibration_batches ||
         was.curvature_sequences < could->curvature_sequences;
}

double MonitorThread::IntervalSeconds(const MonitorStatus& status) const {
  return SecondsBetween(parts_.schedule, status.every, status.step.value_or(0),
                        status.seconds_a_step);
}

Plan MonitorThread::AdditionalPlan() const {
  if (!parts_.adapt_plan) return FullPlan(parts_.planner.range());
  const double interval = IntervalSeconds(parts_.publisher->status());
  return parts_.planner.Additional(kShareForAdditional * parts_.pace->governor().long_run_share() *
                                   interval / static_cast<double>(parts_.schedule.decay_density));
}

void MonitorThread::OfferAdditional() {
  const Plan plan = AdditionalPlan();
  const Planner& planner = parts_.planner;
  const double work = QuantizationSeconds(plan, planner.range(), planner.costs()) +
                      CurvatureSeconds(plan, planner.costs());
  parts_.switches->additional_seconds = work / parts_.pace->governor().long_run_share();
}

void MonitorThread::AdaptPlan(const Plan& plan, const Measured& measured, int64_t step) {
  if (!parts_.adapt_plan || parts_.pace->unhindered()) return;
  // What failed or was cut short says nothing about what it takes.
  for (const ProbeResult& result : measured.results) {
    if (result.outcome.kind != ProbeOutcome::Kind::kOk) return;
  }
  const auto seconds = [&](std::string_view probe) -> std::optional<double> {
    const auto found = measured.work_seconds.find(probe);
    return found == measured.work_seconds.end() ? std::nullopt : std::optional(found->second);
  };
  SnapshotWork work{.plan = plan,
                    .quantization = seconds(QuantizationProbe::kName).value_or(0),
                    .curvature = seconds(CurvatureProbe::kName)};
  // They measure where curvature is measured, or where it never is, every snapshot.
  (work.curvature ? *work.curvature : work.quantization) +=
      seconds(AveragingProbe::kName).value_or(0) + seconds(MixedPrecisionProbe::kName).value_or(0);
  const Governor& governor = parts_.pace->governor();
  const double interval = IntervalSeconds(parts_.publisher->status());
  const std::optional<std::string> changed = parts_.planner.Measured(
      work, AllowedSeconds(governor.rests(), governor.long_run_share(), interval));
  parts_.board->SetPlanLevel(parts_.planner.Level());
  if (!changed) return;
  Log(Severity::kInfo, StrCat("later snapshots: ", *changed));
  PublishEvent(Event::Kind::kPlanChanged, Severity::kInfo, step, *changed);
}

}  // namespace ptqwatch::internal
