#include "monitor/run_state.h"

#include <algorithm>
#include <filesystem>
#include <random>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "journal/newest_report.h"
#include "journal/run_history.h"

namespace ptqwatch::internal {
namespace {

std::string NewRunId(double unix_seconds) {
  // std::random_device leaves the trainer's generators alone.
  std::random_device random;
  return StrFormat("%d-%08x", static_cast<int64_t>(unix_seconds), static_cast<uint32_t>(random()));
}

// The same for all ranks, whose directories are in that of the run.
std::string SharedRunId(const std::string& rank_dir) {
  return std::filesystem::path(rank_dir).parent_path().filename().string();
}

void LogColdStart(std::string_view why) { Log(Severity::kWarning, StrCat("cold start: ", why)); }

// The change points and the reports are enough to restore the schedule.
LrTracker FollowedBy(const std::vector<AnalyzedReport>& history) {
  LrTracker lr;
  for (const AnalyzedReport& analyzed : history) {
    const Report& report = analyzed.report;
    for (const LrChangePoint& point : report.lr_change_points) {
      lr.Step(point.step, point.learning_rate, std::nullopt);
    }
    if (report.learning_rate) lr.Step(report.step, *report.learning_rate, std::nullopt);
  }
  if (!history.empty()) {
    const Report& newest = history.back().report;
    lr.Restore(newest.lr_phase, newest.decay_onset_step);
  }
  return lr;
}

}  // namespace

ProbeState RunState::ReadProbeState(const std::string& fingerprint,
                                    const VectorSpace& space) const {
  if (!probe_state_file) return {};
  const auto refuse = [&](std::string_view problem) {
    LogColdStart(StrCat("'", probe_state_file->path(), "' is not used: ", problem));
    return ProbeState();
  };
  if (probe_state_file->run_id() != run_id) {
    return refuse(StrCat("it belongs to run ", probe_state_file->run_id(), ", not to ", run_id));
  }
  if (probe_state_file->fingerprint() != fingerprint) {
    return refuse("model, data or options have changed since (the fingerprint differs)");
  }
  absl::StatusOr<ProbeState> state = probe_state_file->Read(space);
  return state.ok() ? *std::move(state) : refuse(Message(state.status()));
}

absl::StatusOr<RunState> ResumeRun(const MonitorOptions& options) {
  RunState state;
  state.run_id = options.run_id;
  if (!options.run_dir.empty()) {
    PTQWATCH_ASSIGN_OR_RETURN(state.lock, RunLock::Take(options.run_dir));
    PTQWATCH_ASSIGN_OR_RETURN(RunHistory history, ReadRunHistory(options.run_dir));
    if (state.run_id.empty()) state.run_id = history.run_id;
    if (state.run_id.empty() && options.ranks) state.run_id = SharedRunId(options.run_dir);
    state.attempt = history.attempts + 1;
    if (options.ranks) {
      // Attempts count those of the run, so that equal ones belong together in all ranks. No rank
      // can have reported in this one, since the ranks train in step.
      const auto run_dir = std::filesystem::path(options.run_dir).parent_path();
      state.attempt = std::max(state.attempt, NewestAttemptAmongRanks(run_dir) + 1);
    }
    state.sequence = history.last_sequence;
    state.unreadable_lines = history.unreadable_lines;
    state.history = std::move(history.reports);
    state.lr = FollowedBy(state.history);
    absl::StatusOr<ProbeStateFile> file = ProbeStateFile::Open(options.run_dir);
    if (file.ok()) {
      state.probe_state_file = *std::move(file);
    } else if (!absl::IsNotFound(file.status())) {
      LogColdStart(Message(file.status()));
    }
  }
  if (state.run_id.empty()) state.run_id = NewRunId(options.clock->UnixSeconds());
  if (state.probe_state_file && state.probe_state_file->run_id() == state.run_id) {
    state.sequence = std::max(state.sequence, state.probe_state_file->sequence());
  }
  return state;
}

}  // namespace ptqwatch::internal
