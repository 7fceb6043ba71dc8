#include "watch_command.h"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "client/connection.h"
#include "end_of_run.h"
#include "full_screen.h"
#include "report_proto.h"
#include "screen_view.h"
#include "watch_view.h"

namespace ptqwatch::internal {
namespace {

// Keys and a new size of the terminal are looked for so often.
constexpr std::chrono::milliseconds kScreenTick{100};

// A run that dies has as long to come back as a server that cannot be reached.
constexpr std::chrono::seconds kPatience{60};

struct Followed {
  absl::Status status;
  bool over = false;  ///< the run has stopped
};

Followed FollowToTheEnd(const WatchFlags& flags, const FollowOptions& pace, Clock* clock,
                        FollowListener* view) {
  EndOfRun end(view, flags.since, pace.give_up_after.value_or(kPatience), clock);
  FollowListener* const listener = flags.keep ? view : &end;
  Follower follower(flags.target, pace, clock, listener);
  absl::Status status = follower.Run();
  if (status.ok()) status = end.failure();
  return {status, follower.over()};
}

absl::Status WatchOnScreen(const WatchFlags& flags, FollowOptions pace, Clock* clock,
                           Terminal* terminal) {
  pace.ask_status = true;
  pace.ask_every = pace.tick;
  pace.tick = kScreenTick;
  const auto read_layers = [&flags](int64_t sequence) -> std::optional<AnalyzedReport> {
    v1::ListReportsRequest request;
    request.set_after_sequence(sequence - 1);
    request.set_limit(1);
    v1::ListReportsResponse found;
    if (!Connection(flags.target).ListReports(request, &found).ok()) return std::nullopt;
    if (found.reports_size() == 0) return std::nullopt;
    return FromProto(found.reports(0));
  };
  std::optional<FullScreen> screen(terminal);
  ScreenView view(&flags, clock, terminal->style(),
                  {.size = [&] { return screen->size(); },
                   .draw = [&](const std::vector<std::string>& lines) { screen->Draw(lines); },
                   .key = [&] { return screen->Key(); },
                   .closed = [&] { return terminal->closed(); }},
                  read_layers);
  const Followed followed = FollowToTheEnd(flags, pace, clock, &view);
  screen.reset();
  const std::string summary = WatchSummary(view.state(), terminal->style());
  if (!summary.empty()) terminal->Line(summary);
  if (followed.over) terminal->Line("the run has stopped");
  return followed.status;
}

}  // namespace

absl::Status WatchRun(const WatchFlags& flags, FollowOptions pace, Clock* clock,
                      Terminal* terminal) {
  pace.after_sequence = flags.since;
  pace.without_layers = !flags.json;
  pace.ask_status = terminal->terminal() || !flags.keep;
  pace.with_events = true;
  pace.exit_when_done = !flags.keep;
  if (terminal->interactive() && !flags.plain && !flags.json) {
    return WatchOnScreen(flags, pace, clock, terminal);
  }
  WatchView view(&flags, clock, terminal);
  const Followed followed = FollowToTheEnd(flags, pace, clock, &view);
  terminal->Status("");
  return followed.status;
}

}  // namespace ptqwatch::internal
