#include "feed/served_runs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "base/stopwatch.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "ptqwatch/run_source.h"

namespace ptqwatch::internal {
namespace {

constexpr double kMaxStatusAge = 15;  // seconds

}  // namespace

void ServedRun::SetStatus(RunStatus status) {
  MutexLock lock(mutex_);
  status.name = std::move(status_.name);
  status_ = std::move(status);
  status_seconds_ = InSeconds(clock_->Monotonic());
}

void ServedRun::Publish(const AnalyzedReport& report) {
  if (!feed.Publish(report)) {
    MutexLock lock(mutex_);
    ++out_of_order_;
    return;
  }
  auto newest = std::make_shared<const AnalyzedReport>(report);
  MutexLock lock(mutex_);
  const bool past = ahead_of_past_ && !open_ &&
                    (report.report.run_id != report_->report.run_id ||
                     report.report.sequence <= report_->report.sequence);
  if (!past) Show(std::move(newest));
}

void ServedRun::ShowAheadOfPast(std::shared_ptr<const AnalyzedReport> newest) {
  MutexLock lock(mutex_);
  ahead_of_past_ = true;
  Show(std::move(newest));
}

void ServedRun::Show(std::shared_ptr<const AnalyzedReport> report) {
  const double age = clock_->UnixSeconds() - report->report.snapshot_time_unix_seconds;
  report_ = std::move(report);
  snapshot_seconds_ = InSeconds(clock_->Monotonic()) - std::max(age, 0.0);
}

void ServedRun::SetOpen() {
  MutexLock lock(mutex_);
  open_ = true;
}

bool ServedRun::open() const {
  MutexLock lock(mutex_);
  return open_;
}

RunView ServedRun::Look() const {
  RunView view{.run = shared_from_this(), .status = {}, .report = nullptr};
  // Read before the status, so that clients never ask for a report that the feed does not have yet.
  const int64_t newest = feed.newest().sequence;
  MutexLock lock(mutex_);
  view.status = status_;
  view.status.monitor.last_sequence = newest;
  const Health health = status_.monitor.health;
  const double age = InSeconds(clock_->Monotonic()) - status_seconds_;
  if (age > kMaxStatusAge && health != Health::kStopped && health != Health::kInert) {
    view.status.monitor.health = Health::kSilent;
    view.status.monitor.health_reason =
        StrCat("no sign of life for ", std::llround(age),
               " s: the run directory cannot be read, its disk hangs");
  }
  if (out_of_order_ > 0) {
    view.status.monitor.dropped_reports.push_back({"serve", "out_of_order", out_of_order_});
  }
  view.open = open_;
  if (!open_) view.status.monitor.health_reason = "the journal is being read";
  if (open_ || ahead_of_past_) {
    view.report = report_;
    view.report_age_seconds = InSeconds(clock_->Monotonic()) - snapshot_seconds_;
  }
  return view;
}

void ServedRuns::Add(std::shared_ptr<ServedRun> run) {
  {
    MutexLock lock(mutex_);
    runs_.push_back(std::move(run));
  }
  changed_();
}

void ServedRuns::Remove(const std::shared_ptr<ServedRun>& run) {
  {
    MutexLock lock(mutex_);
    std::erase(runs_, run);
  }
  run->feed.Close();
  changed_();
}

void ServedRuns::Open(const std::shared_ptr<ServedRun>& run) {
  run->SetOpen();
  changed_();
}

std::vector<RunView> ServedRuns::Look() const {
  std::vector<std::shared_ptr<ServedRun>> runs;
  {
    MutexLock lock(mutex_);
    runs = runs_;
  }
  std::vector<RunView> views;
  for (const auto& run : runs) views.push_back(run->Look());
  std::sort(views.begin(), views.end(), [](const RunView& one, const RunView& other) {
    return one.status.name < other.status.name;
  });
  return views;
}

std::vector<RunView> ServedRuns::Open() const {
  std::vector<RunView> views = Look();
  std::erase_if(views, [](const RunView& view) { return !view.open; });
  return views;
}

bool ServedRuns::any_open() const {
  MutexLock lock(mutex_);
  return std::any_of(runs_.begin(), runs_.end(), [](const auto& run) { return run->open(); });
}

absl::StatusOr<RunView> ServedRuns::Find(const std::string& run) const {
  std::vector<RunView> views = Open();
  if (views.empty()) return absl::UnavailableError("there is no run yet");
  if (run.empty() && views.size() == 1) return std::move(views[0]);
  std::string names;
  for (RunView& view : views) {
    // A run served alone has no name, only an id.
    const std::string& id = view.status.run.run_id;
    const std::string& name = view.status.name;
    if (!run.empty() && (name == run || ValidUtf8(id) == run)) return std::move(view);
    names += StrCat(names.empty() ? "'" : ", '", ValidUtf8(name.empty() ? id : name), "'");
  }
  if (run.empty()) return absl::InvalidArgumentError(StrCat("run must be one of ", names));
  return absl::NotFoundError(StrCat("run '", run, "' is not served here; the runs are ", names));
}

}  // namespace ptqwatch::internal
