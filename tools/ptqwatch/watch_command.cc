#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "command_support.h"
#include "commands.h"
#include "end_of_run.h"
#include "full_screen.h"
#include "screen_view.h"
#include "watch_view.h"

namespace ptqwatch::internal {
namespace {

// Interval of checks for keys and a new terminal size.
constexpr std::chrono::milliseconds kScreenTick{100};

// A dead run may come back within the time allowed to an unreachable server.
constexpr std::chrono::seconds kPatience{60};

struct Followed {
  absl::Status status;
  bool over = false;  ///< the run has stopped
};

Followed FollowToTheEnd(const WatchFlags& flags, const WatchOptions& pace, Clock* clock,
                        RunSource& source, WatchListener* view) {
  if (flags.keep) return {source.Watch(pace, view)};
  EndOfRun end(view, flags.since, pace.give_up_after.value_or(kPatience), clock);
  absl::Status status = source.Watch(pace, &end);
  if (status.ok()) status = end.failure();
  return {status, status.ok() && !end.ended_by_view()};
}

absl::Status WatchOnScreen(const WatchFlags& flags, WatchOptions pace, Clock* clock,
                           Terminal* terminal) {
  pace.status_every = pace.tick;
  pace.tick = kScreenTick;
  const std::unique_ptr<RunSource> source = OpenRun(flags.target, clock);
  const auto read_layers = [&](int64_t sequence) -> std::optional<AnalyzedReport> {
    const auto found = source->Reports({.after_sequence = sequence - 1, .limit = 1});
    if (!found.ok() || found->empty()) return std::nullopt;
    return found->front();
  };
  std::optional<FullScreen> screen(terminal);
  ScreenView view(&flags, clock, terminal->style(),
                  {.size = [&] { return screen->size(); },
                   .draw = [&](const std::vector<std::string>& lines) { screen->Draw(lines); },
                   .key = [&] { return screen->Key(); },
                   .closed = [&] { return terminal->closed(); }},
                  read_layers);
  const Followed followed = FollowToTheEnd(flags, pace, clock, *source, &view);
  screen.reset();
  const std::string summary = WatchSummary(view.state(), terminal->style());
  if (!summary.empty()) terminal->Line(summary);
  if (followed.over) terminal->Line("the run has stopped");
  return followed.status;
}

// Uses the full screen of an interactive terminal, otherwise a row or a line of JSON per report.
absl::Status WatchRun(const WatchFlags& flags, WatchOptions pace, Clock* clock,
                      Terminal* terminal) {
  pace.after_sequence = flags.since;
  pace.without_layers = !flags.json;
  if (terminal->terminal() || !flags.keep) pace.status_every = pace.tick;
  pace.exit_when_done = !flags.keep;
  if (terminal->interactive() && !flags.plain && !flags.json) {
    return WatchOnScreen(flags, pace, clock, terminal);
  }
  WatchView view(&flags, clock, terminal);
  const Followed followed =
      FollowToTheEnd(flags, pace, clock, *OpenRun(flags.target, clock), &view);
  terminal->Status("");
  return followed.status;
}

}  // namespace

int RunWatch(const WatchFlags& flags, Clock* clock, Terminal* terminal, WatchOptions pace) {
  if (flags.timeout_seconds.has_value()) pace.give_up_after = FromSeconds(*flags.timeout_seconds);
  return Finish(WatchRun(flags, pace, clock, terminal), terminal);
}

}  // namespace ptqwatch::internal
