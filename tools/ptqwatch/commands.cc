#include "commands.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/strings.h"
#include "base/utf8.h"
#include "command_support.h"
#include "printable.h"
#include "report_text.h"
#include "status_text.h"

namespace ptqwatch::internal {
namespace {

int ShowAllRuns(const StatusFlags& flags, RunSource& source, Clock* clock, Terminal* terminal) {
  const absl::StatusOr<std::vector<RunStatus>> runs = source.Runs();
  if (!runs.ok()) return Fail(runs.status(), terminal);
  for (const RunStatus& run : *runs) {
    if (flags.json) {
      terminal->Line(StatusJson(run));
    } else {
      const double last_step = run.monitor.last_step_unix_seconds;
      terminal->Line(StrCat(
          Printable(run.name), ": ", StatusLine(run.monitor, std::nullopt, std::nullopt),
          last_step > 0 ? StrCat(" | last step ", AgoText(clock->UnixSeconds() - last_step)) : ""));
    }
  }
  return Finish(terminal);
}

int Give(const Target& target, const Command& command, std::string_view done, Terminal* terminal) {
  const absl::Status given = OpenRun(target)->Do(command).status();
  if (!given.ok()) return Fail(given, terminal);
  terminal->Line(done);
  return Finish(terminal);
}

}  // namespace

int RunStatusCommand(const StatusFlags& flags, Clock* clock, Terminal* terminal) {
  const std::unique_ptr<RunSource> source = OpenRun(flags.target, clock);
  const absl::StatusOr<RunStatus> status = source->Status();
  if (absl::IsInvalidArgument(status.status()) && flags.target.run.empty()) {
    return ShowAllRuns(flags, *source, clock, terminal);
  }
  if (!status.ok()) return Fail(status.status(), terminal);
  if (flags.json) {
    terminal->Line(StatusJson(*status));
    return Finish(terminal);
  }
  terminal->Block(StatusBlock(*status, clock->UnixSeconds()));
  const int64_t last = status->monitor.last_sequence;
  if (last == 0) return Finish(terminal);

  // If the newest report is announced but not yet available, the one before it is shown.
  const auto newest =
      source->Reports({.after_sequence = std::max<int64_t>(0, last - 2), .without_layers = true});
  if (!newest.ok()) return Fail(newest.status(), terminal);
  if (!newest->empty()) {
    terminal->Block(
        StrCat("\n", ReportBlock(newest->back(), clock->UnixSeconds(), terminal->style())));
  }
  return Finish(terminal);
}

int RunPause(const PauseFlags& flags, Terminal* terminal) {
  return Give(flags.target, Pause{}, "paused: no snapshots until `ptqwatch resume`", terminal);
}

int RunResume(const ResumeFlags& flags, Terminal* terminal) {
  return Give(flags.target, Resume{}, "resumed", terminal);
}

int RunEvery(const EveryFlags& flags, Terminal* terminal) {
  return Give(flags.target, SetEvery{.steps = flags.steps},
              StrCat("a snapshot every ", flags.steps, flags.steps == 1 ? " step" : " steps"),
              terminal);
}

int RunCommand(Invocation invocation, Clock* clock, Terminal* terminal) {
  struct Runner {
    Clock* clock;
    Terminal* terminal;
    int operator()(const WatchFlags& flags) const { return RunWatch(flags, clock, terminal); }
    int operator()(const StatusFlags& flags) const {
      return RunStatusCommand(flags, clock, terminal);
    }
    int operator()(const SnapshotFlags& flags) const { return RunSnapshot(flags, clock, terminal); }
    int operator()(const SliceFlags& flags) const { return RunSlice(flags, clock, terminal); }
    int operator()(const CooldownFlags& flags) const { return RunCooldown(flags, clock, terminal); }
    int operator()(const PauseFlags& flags) const { return RunPause(flags, terminal); }
    int operator()(const ResumeFlags& flags) const { return RunResume(flags, terminal); }
    int operator()(const EveryFlags& flags) const { return RunEvery(flags, terminal); }
    int operator()(const ServeFlags& flags) const { return RunServe(flags, terminal); }
    int operator()(const ReplayFlags& flags) const { return RunReplay(flags, terminal); }
    int operator()(const HistoryFlags& flags) const { return RunHistory(flags, terminal); }
    int operator()(const LayersFlags& flags) const { return RunLayers(flags, terminal); }
    int operator()(const ReportFlags& flags) const { return RunReport(flags, clock, terminal); }
    int operator()(const TrajectoryFlags& flags) const { return RunTrajectory(flags, terminal); }
    int operator()(const PrintText& flags) const {
      terminal->Block(flags.text);
      return Finish(terminal);
    }
  };
  return std::visit(Runner{clock, terminal}, invocation);
}

}  // namespace ptqwatch::internal
