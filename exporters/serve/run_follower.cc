#include "serve/run_follower.h"

#include <chrono>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

constexpr std::chrono::milliseconds kTick{100};
constexpr std::chrono::hours kForever{24 * 365 * 100};
// Wait after an unexpected failure, such as exhausted memory. The source itself handles trouble
// with files.
constexpr std::chrono::seconds kFollowAgain{1};

}  // namespace

RunFollower::RunFollower(const std::string& run_dir, MakeRun make, ServedRuns* runs)
    : source_(OpenRunDirectory(run_dir)), make_(std::move(make)), runs_(runs) {}

absl::StatusOr<std::unique_ptr<RunFollower>> RunFollower::Start(const std::string& run_dir,
                                                                MakeRun make, ServedRuns* runs) {
  std::unique_ptr<RunFollower> run(new RunFollower(run_dir, std::move(make), runs));
  PTQWATCH_ASSIGN_OR_RETURN(run->thread_,
                            StartThread("ptqw-follow", [run = run.get()] { run->Follow(); }));
  return run;
}

void RunFollower::Follow() {
  const WatchOptions options{
      .give_up_after = kForever, .status_every = std::chrono::milliseconds(0), .tick = kTick};
  while (!stopping_) {
    BeginAnew();
    const absl::Status status = source_->Watch(options, this);
    if (stopping_) return;
    trouble_(Severity::kError,
             StrCat("run directory '", source_->place(), "' is read again: ", Message(status)));
    Clock::Real()->SleepFor(kFollowAgain, stopping_);
  }
}

void RunFollower::BeginAnew() {
  if (shown_) runs_->Remove(run_);
  run_ = make_(source_.get());
  run_->SetStatus(status_);
  if (newest_ != nullptr) run_->ShowAheadOfPast(newest_);
  run_id_.clear();
  place_ = {};
  shown_ = open_ = false;
}

void RunFollower::ShowOnceKnown() {
  if (open_ || !known_) return;
  // Without a status file, only the last lines of the journal tell the state of the run.
  if (!caught_up_ && !status_.time_unix_seconds) return;
  if (!std::exchange(shown_, true)) runs_->Add(run_);
  open_ = caught_up_;
  if (open_) runs_->Open(run_);
}

bool RunFollower::OnReport(const AnalyzedReport& report, int64_t /*missed*/) {
  // The numbers of a run that was started again under its old name begin anew.
  const std::pair<int, int64_t> place(report.report.attempt, report.report.sequence);
  if (!run_id_.empty() && (run_id_ != report.report.run_id || place <= place_)) BeginAnew();
  run_id_ = report.report.run_id;
  place_ = place;
  known_ = true;
  run_->Publish(report);
  ShowOnceKnown();
  return !stopping_;
}

void RunFollower::OnEvent(const Event& event) {
  known_ = true;
  run_->Publish(event);
  ShowOnceKnown();
}

void RunFollower::OnStatus(const RunStatus& status) {
  known_ = true;
  status_ = status;
  run_->SetStatus(status);
  ShowOnceKnown();
}

void RunFollower::OnNewest(const AnalyzedReport& report) {
  newest_ = std::make_shared<const AnalyzedReport>(report);
  run_->ShowAheadOfPast(newest_);
}

void RunFollower::OnCaughtUp() {
  caught_up_ = true;
  newest_ = nullptr;
  ShowOnceKnown();
}

bool RunFollower::OnTick(bool /*connected*/) { return !stopping_; }

void RunFollower::Stop() {
  stopping_ = true;
  thread_.Join();
  if (std::exchange(shown_, false)) runs_->Remove(run_);
}

}  // namespace ptqwatch::internal
