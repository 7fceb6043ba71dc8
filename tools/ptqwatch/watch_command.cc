#include "watch_command.h"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "client/connection.h"
#include "full_screen.h"
#include "report_proto.h"
#include "screen_view.h"
#include "watch_view.h"

namespace ptqwatch::internal {
namespace {

// Keys and a new size of the terminal are looked for so often.
constexpr std::chrono::milliseconds kScreenTick{100};

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
  const absl::Status followed = Follower(flags.target, pace, clock, &view).Run();
  screen.reset();
  const std::string summary = WatchSummary(view.state(), terminal->style());
  if (!summary.empty()) terminal->Line(summary);
  return followed;
}

}  // namespace

absl::Status WatchRun(const WatchFlags& flags, FollowOptions pace, Clock* clock,
                      Terminal* terminal) {
  pace.after_sequence = flags.since;
  pace.without_layers = !flags.json;
  pace.ask_status = terminal->terminal();
  pace.with_events = true;
  pace.exit_when_done = flags.exit_when_done;
  if (terminal->interactive() && !flags.plain && !flags.json) {
    return WatchOnScreen(flags, pace, clock, terminal);
  }
  WatchView view(&flags, clock, terminal);
  const absl::Status followed = Follower(flags.target, pace, clock, &view).Run();
  terminal->Status("");
  return followed;
}

}  // namespace ptqwatch::internal
