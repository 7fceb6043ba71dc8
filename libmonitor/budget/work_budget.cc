#include "budget/work_budget.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/stopwatch.h"

namespace ptqwatch::internal {
namespace {

constexpr double kReadingSeconds = 1;
constexpr double kMostSavedSeconds = 30;
constexpr double kShareWhileMeasuring = 0.25;
// Share of the long-run share; with more, the rests of snapshots would never end.
constexpr double kShareOfJobs = 0.5;

// Limit for the first report, and for a curvature measurement that Finish adds.
constexpr double kSoonSeconds = 15;
// Share of the time between additional snapshots, if everything is measured.
constexpr double kShareForAdditional = 0.9;
// Share of the time between snapshots that curvature may take while a job waits.
constexpr double kShareOfCurvature = 0.25;
// Share of the time between two snapshots, with a spare core.
constexpr double kShareOfInterval = 0.9;
constexpr double kShortestInterval = 2;
// Rarer snapshots must not get less, and the reports of costlier ones would be outdated.
constexpr double kShortestIntervalWithRests = 60;

}  // namespace

WorkBudget::WorkBudget(const Options& options, Planner planner, Clock* clock, Pacer pacer,
                       TrainerSwitches* switches, StatusBoard* board, ReadFunction read)
    : options_(options),
      clock_(clock),
      pacer_(std::move(pacer)),
      switches_(switches),
      board_(board),
      read_(std::move(read)),
      may_idle_(IdlePriorityCanBeLeft()),
      planner_(std::move(planner)),
      cores_(options.cores),
      credited_(Now()) {}

double WorkBudget::Now() const { return InSeconds(clock_->Monotonic()); }

void WorkBudget::Enter(std::function<void()> between) {
  cores_.Read(read_());
  pacer_.OnWork([this, between = std::move(between)](double seconds) {
    Charge(seconds);
    const double now = Now();
    board_->Alive(now);
    between();
    if (now < next_reading_) return;
    next_reading_ = now + kReadingSeconds;
    ReadMachine();
    Refresh();
  });
  Refresh();
}

bool WorkBudget::Begin(Task task) {
  ReadMachine();
  if (task == Task::kJob && !job_may_run()) return false;
  SetTask(task);
  pacer_.Begin();
  return true;
}

void WorkBudget::SetTask(Task task) {
  task_ = task;
  switches_->measuring.store(task != Task::kNone, std::memory_order_relaxed);
  Refresh();
}

void WorkBudget::BeginFullSpeed() {
  full_speed_.fetch_add(1, std::memory_order_relaxed);
  pacer_.SetDutyCycle(1);
  switches_->rest_until_ns.store(0, std::memory_order_relaxed);
}

void WorkBudget::Refresh() {
  const double sustained = (rests() ? kShareOfJobs : 1) * long_run_share();
  pacer_.SetDutyCycle(task_ == Task::kJob ? std::min(share(), sustained) : share());
  board_->SetDutyCycle(long_run_share());
  SetThreadPriority(Priority());
  const double rest = RestSeconds();
  int64_t rest_until = rest > 0 ? static_cast<int64_t>(1e9 * (Now() + rest)) : 0;
  if (rests() && task_ == Task::kSnapshot) rest_until = std::numeric_limits<int64_t>::max();
  switches_->rest_until_ns.store(rest_until, std::memory_order_relaxed);
}

// At idle priority a thread yields its core at once to any other runnable thread, but would never
// run while the cores are busy.
ThreadPriority WorkBudget::Priority() const {
  if (full_speed()) return ThreadPriority::kBatch;
  if (spare()) return may_idle_ ? ThreadPriority::kIdle : ThreadPriority::kBatch;
  // On a GPU that trains, every launch takes locks of the driver and of LibTorch's allocator that
  // the trainer's launches wait for. A thread that is preempted inside one would stall training.
  if (options_.cores.on_training_device) return ThreadPriority::kBatch;
  return options_.fixed_duty_cycle ? ThreadPriority::kBatch : ThreadPriority::kLow;
}

// A comparison covers all the time that a snapshot is measured; the monitor works for only a share
// of it.
double WorkBudget::LossPerSecond() const {
  if (spare()) return slowdown_.ratio();
  return std::max(1.0, busy_slowdown_.ratio() / kShareWhileMeasuring);
}

double WorkBudget::UnfixedShare() const {
  const double loss = LossPerSecond();
  return loss <= options_.max_overhead ? 1 : options_.max_overhead / loss;
}

double WorkBudget::share() const {
  if (full_speed()) return 1;
  if (options_.fixed_duty_cycle) return *options_.fixed_duty_cycle;
  if (cores_.known() && spare()) return 1;
  return std::max(kShareWhileMeasuring, options_.max_overhead);
}

double WorkBudget::long_run_share() const {
  return options_.fixed_duty_cycle.value_or(UnfixedShare());
}

double WorkBudget::CreditNow() const {
  return std::min(kMostSavedSeconds, credit_ + options_.max_overhead * (Now() - credited_));
}

double WorkBudget::RestSeconds() const {
  return charges() ? std::max(0.0, -CreditNow() / options_.max_overhead) : 0;
}

void WorkBudget::ChargeLoss(double seconds) {
  credit_ = CreditNow();
  credited_ = Now();
  if (charges()) credit_ -= seconds;
}

void WorkBudget::ChargeCopy(double stall_seconds) {
  if (stall_seconds > kNoticedStallSeconds) ChargeLoss(stall_seconds);
}

void WorkBudget::WatchServer(std::function<double()> cpu_seconds) {
  MutexLock lock(server_mutex_);
  server_cpu_ = std::move(cpu_seconds);
}

void WorkBudget::ReadMachine() {
  cores_.Read(read_());
  double seconds = 0;
  {
    MutexLock lock(server_mutex_);
    if (server_cpu_ == nullptr) return;
    seconds = server_cpu_();
  }
  const double before = std::exchange(server_seconds_, seconds);
  if (full_speed()) return;
  const double lost = LossPerSecond() * (seconds < before ? seconds : seconds - before);
  board_->AddServerSeconds(lost);
  ChargeLoss(lost);
}

void WorkBudget::ChargeSteps(const StepTimes& times) {
  if (const auto comparison = slowdown_.Compare(times)) ChargeSteps(*comparison);
}

void WorkBudget::ChargeSteps(const StepComparison& comparison) {
  board_->AddLostSeconds(comparison.lost_seconds, Now());
  if (!full_speed()) (spare() ? slowdown_ : busy_slowdown_).Add(comparison);
}

double WorkBudget::SecondsForSnapshot(double interval_seconds) const {
  const double seconds = rests() ? std::max(interval_seconds, kShortestIntervalWithRests)
                                 : kShareOfInterval * std::max(interval_seconds, kShortestInterval);
  return std::min(
      {long_run_share() * seconds, share() * options_.MeanSeconds(), PlanModel::kLongestSeconds});
}

Plan WorkBudget::NextPlan(const DueSnapshot& due) {
  if (due.seconds_to_finish) {
    if (const auto last = LastPlan(*due.seconds_to_finish)) return *last;
  }
  if (due.additional) return AdditionalPlan(due.interval_seconds);
  Plan plan = planner_.Next(share() * std::min(kSoonSeconds, options_.MeanSeconds()));
  const PlanModel& model = planner_.model();
  if (due.job_waits && !planner_.fixed() &&
      model.Curvature(plan) > kShareOfCurvature * due.interval_seconds) {
    plan = model.WithoutCurvature(plan);
  }
  if (due.at_finish && model.Curvature(planner_.plan()) <= kSoonSeconds) {
    plan.curvature_sequences = planner_.plan().curvature_sequences;
  }
  return plan;
}

Plan WorkBudget::AdditionalPlan(double interval_seconds) const {
  return planner_.Additional(
      std::min(kShareForAdditional * long_run_share() * interval_seconds / options_.decay_density,
               share() * options_.MeanSeconds()));
}

void WorkBudget::OfferAdditional(double interval_seconds) {
  switches_->additional_seconds =
      planner_.model().Whole(AdditionalPlan(interval_seconds)) / long_run_share();
}

std::optional<std::string> WorkBudget::Learn(const SnapshotWork& work, double interval_seconds) {
  if (full_speed()) return std::nullopt;
  auto changed = planner_.Measured(work, SecondsForSnapshot(interval_seconds));
  board_->SetPlanLevel(planner_.Level());
  return changed;
}

}  // namespace ptqwatch::internal
