#include "trajectory/follow_trajectory.h"

#include <algorithm>
#include <set>

#include "absl/types/span.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "trajectory/checkpoint_folder.h"
#include "trajectory/checkpoint_list.h"

namespace ptqwatch::internal {

absl::StatusOr<std::vector<Checkpoint>> CheckpointWatch::Poll() {
  PTQWATCH_ASSIGN_OR_RETURN(CheckpointList list, ListCheckpoints(folders_, /*growing=*/true));
  std::map<std::string, int> left_out;
  for (const std::string& line : list.left_out) {
    const auto before = left_out_.find(line);
    const int looks = before == left_out_.end() ? 1 : before->second + 1;
    left_out[line] = looks;
    if (looks == kLooksUntilTold && notice_) notice_(line);
  }
  left_out_ = std::move(left_out);
  std::map<std::string, std::string> states;
  std::vector<Checkpoint> settled;
  for (Checkpoint& checkpoint : list.checkpoints) {
    const absl::StatusOr<std::string> state = StateOfFolder(checkpoint.path);
    if (!state.ok()) continue;  // removed meanwhile
    const auto before = states_.find(checkpoint.path);
    const bool unchanged = before != states_.end() && before->second == *state;
    states[checkpoint.path] = *state;
    if (unchanged) settled.push_back(std::move(checkpoint));
  }
  states_ = std::move(states);
  return settled;
}

absl::StatusOr<std::pair<Checkpoint, ModelFacts>> WaitForCheckpoint(
    CheckpointWatch& watch, CheckpointMeter& meter,
    const std::function<void(std::string_view)>& notice, const ExecutionContext& context) {
  std::set<std::string> told;
  while (true) {
    PTQWATCH_ASSIGN_OR_RETURN(std::vector<Checkpoint> found, watch.Poll());
    for (Checkpoint& checkpoint : found) {
      absl::StatusOr<ModelFacts> facts = meter.Facts(checkpoint.path);
      if (facts.ok()) return std::pair(std::move(checkpoint), *std::move(facts));
      if (!CheckComplete(checkpoint.path, /*trained=*/false).ok()) continue;  // removed meanwhile
      if (!absl::IsDataLoss(facts.status())) return facts.status();
      std::string text = StrCat(Quoted(checkpoint.path), " is left out for now: ", facts.status());
      if (told.insert(text).second) notice(text);
    }
    context.clock->SleepFor(kFollowInterval, context.cancel.flag());
    PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
  }
}

absl::Status FollowTrajectory(CheckpointWatch& watch, std::optional<int64_t> until,
                              const ModelFacts& facts, TrajectoryOptions options,
                              CheckpointMeter& meter, TrajectoryRun& run,
                              const TrajectoryListener& listener, const ExecutionContext& context) {
  options.skip_removed = true;
  std::set<std::string> told;  // a damaged checkpoint is tried again at each look
  TrajectoryListener once = listener;
  once.notice = [&](std::string_view text) {
    if (told.emplace(text).second && listener.notice) listener.notice(text);
  };
  const auto reached = [&] {
    return until && std::any_of(run.reports().begin(), run.reports().end(),
                                [&](const AnalyzedReport& analyzed) {
                                  return analyzed.report.step >= *until;
                                });
  };
  while (!reached()) {
    PTQWATCH_ASSIGN_OR_RETURN(const std::vector<Checkpoint> settled, watch.Poll());
    PTQWATCH_RETURN_IF_ERROR(MeasureTrajectory(settled, facts, options, meter, run, once, context));
    if (reached()) break;
    context.clock->SleepFor(kFollowInterval, context.cancel.flag());
    PTQWATCH_RETURN_IF_ERROR(context.Checkpoint());
  }
  return absl::OkStatus();
}

}  // namespace ptqwatch::internal
