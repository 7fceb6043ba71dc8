#include "ranks/rank_journals.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"
#include "journal/newest_report.h"
#include "journal/rank_directory.h"
#include "journal/status_file.h"
#include "ranks/merge_status.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

// A rank measures its part of a snapshot within this time, or its part is left out.
constexpr seconds kLongestWait{300};
// A directory or status file becomes visible within this time, also on a file system that caches.
constexpr seconds kFirstSign{60};
// Age of a status from which on it counts a snapshot as busy.
constexpr seconds kSettled{1};
constexpr int kLinesAtOnce = 200;
// Interval between reads of a status file, for each rank: four seconds for a thousand.
constexpr std::chrono::milliseconds kStatusInterval{4};
constexpr size_t kSeenEvents = 4096;

// Whether all ranks of a run write the same events of this kind.
bool IsCommon(Event::Kind kind) {
  return kind == Event::Kind::kPhaseChange || kind == Event::Kind::kResumed;
}

}  // namespace

RankJournals::Source::Source(int64_t number, const std::string& directory, Clock* clock,
                             LineHandlers handlers)
    : rank(number),
      run_dir(directory),
      status(directory, clock),
      tail(directory, std::move(handlers)) {}

RankJournals::RankJournals(std::string run_dir, Clock* clock, Handlers handlers, Wait wait)
    : run_dir_(std::move(run_dir)),
      clock_(clock),
      handlers_(std::move(handlers)),
      wait_(wait),
      series_(std::make_unique<MergedSeries>()) {
  FindRanks();
}

void RankJournals::FindRanks() {
  for (const int64_t rank : RanksIn(run_dir_)) {
    std::unique_ptr<Source>& source = sources_[rank];
    if (source != nullptr) continue;
    LineHandlers handlers;
    handlers.report = [this, rank](AnalyzedReport analyzed) {
      OnReport(*sources_.at(rank), std::move(analyzed.report));
    };
    if (handlers_.event) {
      handlers.event = [this, rank](const Event& event) { OnEvent(*sources_.at(rank), event); };
    }
    handlers.unreadable = [this] { handlers_.unreadable(); };
    source =
        std::make_unique<Source>(rank, RankDirectory(run_dir_, rank), clock_, std::move(handlers));
    source->grown = clock_->Monotonic();
  }
}

absl::Status RankJournals::ReadStatus() {
  FindRanks();
  const nanoseconds now = clock_->Monotonic();
  const nanoseconds interval = kStatusInterval * static_cast<int64_t>(sources_.size());
  absl::Status failure;
  for (const auto& [rank, source] : sources_) {
    if (source->looked && now - *source->looked < interval) continue;
    source->looked = now;
    const absl::StatusOr<RunStatus> status = ReadStatusFile(source->run_dir);
    if (!status.ok()) {
      if (!absl::IsNotFound(status.status())) failure = status.status();
      continue;
    }
    source->status.OnStatus(*status);
    source->run_id = status->run.run_id;
    if (status->run.run_id == run_id_) series_->KnowAttempt(source->rank, status->run.attempt);
  }
  FindRun();
  PTQWATCH_RETURN_IF_ERROR(failure);
  return known() ? absl::OkStatus() : absl::NotFoundError("no rank has a status file");
}

// The lowest rank is in every attempt of a run.
void RankJournals::FindRun() {
  if (sources_.empty()) return;
  const Source& lowest = *sources_.begin()->second;
  std::string run_id = lowest.run_id.empty() ? run_id_ : lowest.run_id;
  if (run_id.empty() || world_ == 0) {
    const auto newest = ReadNewestReport(lowest.run_dir);
    if (newest.ok() && *newest) {
      if (run_id.empty()) run_id = (*newest)->report.run_id;
      if (world_ == 0) world_ = MergedSeries::RanksOf((*newest)->report);
    }
  }
  if (!run_id.empty() && run_id != run_id_) BeginRun(run_id);
}

void RankJournals::BeginRun(const std::string& run_id) {
  if (!run_id_.empty()) past_runs_.insert(run_id_);
  past_runs_.erase(run_id);
  run_id_ = run_id;
  series_ = std::make_unique<MergedSeries>();
  for (const auto& [rank, source] : sources_) {
    source->sequence = 0;
    source->step.reset();
    if (source->run_id == run_id) {
      series_->KnowAttempt(rank, source->status.run_status().run.attempt);
    }
    if (!source->held) continue;
    Report held = *std::exchange(source->held, std::nullopt);
    OnReport(*source, std::move(held));
  }
}

void RankJournals::OnReport(Source& source, Report report) {
  const bool leads = source.rank == sources_.begin()->first && source.run_id.empty();
  if (run_id_.empty() ||
      (leads && !past_runs_.contains(report.run_id) && report.run_id != run_id_ && source.step)) {
    BeginRun(report.run_id);
  }
  if (report.run_id != run_id_) {
    const bool is_past = past_runs_.contains(report.run_id) || source.run_id == run_id_;
    if (!is_past) source.held = std::move(report);
    return;
  }
  source.sequence = report.sequence;
  source.step = report.step;
  source.attempt = report.attempt;
  series_->Add(source.rank, std::move(report));
}

void RankJournals::OnEvent(const Source& source, Event event) {
  if (event.kind == Event::Kind::kAlert) return;
  if (event.kind == Event::Kind::kStopped) {
    stopped_ = std::move(event);
    return;
  }
  const bool common = IsCommon(event.kind);
  const std::string text = common ? StrCat(ToString(event.kind), source.attempt) : event.message;
  if (seen_events_.size() >= kSeenEvents) seen_events_.erase(seen_events_.begin());
  if (!seen_events_.emplace(event.step, text).second) return;
  if (!common) event.message = StrCat("rank ", source.rank, ": ", event.message);
  handlers_.event(event);
}

absl::StatusOr<bool> RankJournals::ReadLine(Source& source) {
  if (source.at_end || source.held) return false;
  const absl::StatusOr<bool> read = source.tail.ReadLine();
  source.failing = !read.ok();
  source.at_end = !read.ok() || !*read;
  if (!source.at_end) source.grown = clock_->Monotonic();
  return read;
}

bool RankJournals::AnyRuns() const {
  return std::any_of(sources_.begin(), sources_.end(), [](const auto& source) {
    return source.second->status.known() && !source.second->status.ended();
  });
}

// Whether a rank that has no next report may yet report the step.
bool RankJournals::MayReport(int64_t rank, int64_t step) {
  const nanoseconds now = clock_->Monotonic();
  const auto found = sources_.find(rank);
  const bool patient = wait_ == Wait::kForRanks;
  const bool may_appear = patient && AnyRuns();
  if (found == sources_.end()) return may_appear && now - world_since_ < kFirstSign;
  const Source& source = *found->second;
  if (source.status.ended()) return false;
  if (!source.status.known() || source.failing) {
    return may_appear && now - source.grown < kFirstSign;
  }
  const MonitorStatus status = source.status.run_status().monitor;
  const bool passed =
      !status.busy && status.step.value_or(0) > step && status.last_sequence <= source.sequence;
  return !passed || (patient && source.status.changed() < front_since_ + kSettled);
}

bool RankJournals::Awaits(const MergedSeries::Front& front) {
  if (wait_ == Wait::kNever) return false;
  const nanoseconds now = clock_->Monotonic();
  if (front.ranks != front_.ranks) world_since_ = now;
  if (front.step != front_.step || front.ranks != front_.ranks) front_since_ = now;
  front_ = front;
  if (now - front_since_ >= kLongestWait) return false;
  return std::any_of(front.lacking.begin(), front.lacking.end(),
                     [&](int64_t rank) { return MayReport(rank, front.step); });
}

void RankJournals::Deliver() {
  world_ = series_->Look()->ranks;
  MergedSeries::Step step = series_->Take();
  front_.step = -1;
  if (step.report) handlers_.report(*std::move(step.report));
  if (!step.diverged) return;
  ++diverged_events_;
  if (handlers_.event) handlers_.event(*step.diverged);
}

// The end of the run comes after the last step of all ranks.
void RankJournals::DeliverEnd() {
  if (!stopped_ || !handlers_.event || series_->Look()) return;
  if (status().monitor.health != Health::kStopped) return;
  handlers_.event(*std::exchange(stopped_, std::nullopt));
}

absl::StatusOr<bool> RankJournals::ReadJournals() {
  for (const auto& [rank, source] : sources_) source->at_end = false;
  absl::Status failure;
  for (int lines = 0; lines < kLinesAtOnce;) {
    const std::optional<MergedSeries::Front> front = series_->Look();
    bool read_any = false;
    for (const auto& [rank, source] : sources_) {
      // A rank that the front does not lack is needed, too: an earlier step may come from it.
      while (series_->Needs(rank) && lines < kLinesAtOnce) {
        const absl::StatusOr<bool> read = ReadLine(*source);
        if (!read.ok()) failure = read.status();
        if (!read.ok() || !*read) break;
        read_any = true;
        ++lines;
      }
    }
    if (read_any) continue;
    if (lines >= kLinesAtOnce) break;
    if (!front || Awaits(*front)) {
      PTQWATCH_RETURN_IF_ERROR(failure);
      DeliverEnd();
      return false;
    }
    Deliver();
  }
  PTQWATCH_RETURN_IF_ERROR(failure);
  return true;
}

bool RankJournals::known() const {
  return std::any_of(sources_.begin(), sources_.end(),
                     [](const auto& source) { return source.second->status.known(); });
}

bool RankJournals::undecided() const {
  return std::any_of(sources_.begin(), sources_.end(),
                     [](const auto& source) { return source.second->status.undecided(); });
}

RunStatus RankJournals::status() const {
  std::vector<RankView> views;
  const int64_t last = sources_.empty() ? -1 : sources_.rbegin()->first;
  for (int64_t rank = 0; rank <= (world_ > 0 ? world_ - 1 : last); ++rank) {
    RankView& view = views.emplace_back();
    view.rank = rank;
    const auto found = sources_.find(rank);
    if (found == sources_.end()) continue;
    view.snapshot_step = found->second->step;
    if (found->second->status.known()) view.status = found->second->status.run_status();
  }
  RunStatus status = MergeStatus(views);
  status.run.run_dir = run_dir_;
  status.monitor.replicas = series_->replicas();
  status.monitor.events[static_cast<size_t>(Event::Kind::kReplicasDiverged)] += diverged_events_;
  if (series_->sequence() > 0) status.monitor.last_sequence = series_->sequence();
  return status;
}

}  // namespace ptqwatch::internal
