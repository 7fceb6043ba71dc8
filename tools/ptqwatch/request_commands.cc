#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/strings.h"
#include "command_support.h"
#include "commands.h"
#include "report_text.h"
#include "requested_report.h"
#include "requested_work.h"
#include "status_text.h"

namespace ptqwatch::internal {
namespace {

// Requests a status at every tick.
WatchOptions WithStatuses(WatchOptions options) {
  options.status_every = options.tick;
  options.exit_when_done = true;
  return options;
}

int WaitForSnapshot(const SnapshotFlags& flags, RunSource& source, const MonitorStatus& before,
                    Clock* clock, Terminal* terminal, WatchOptions options) {
  options = WithStatuses(options);
  options.after_sequence = before.last_sequence;
  options.without_layers = !flags.json;
  RequestedReport listener(before, clock->Monotonic() + FromSeconds(flags.timeout_seconds), clock,
                           terminal);
  const absl::Status followed = source.Watch(options, &listener);
  if (!followed.ok()) return Fail(followed, terminal);
  if (terminal->closed()) return Finish(terminal);
  if (!listener.report().has_value()) {
    if (listener.failed()) {
      return Fail(absl::AbortedError(StrCat("the snapshot at ", source.place(),
                                            " failed; the trainer's log says why")),
                  terminal);
    }
    const MonitorStatus status = listener.status().value_or(MonitorStatus());
    const std::string last_step =
        status.step ? StrCat("last step ", *status.step, ", ",
                             AgoText(clock->UnixSeconds() - status.last_step_unix_seconds))
                    : "no step yet";
    return Fail(absl::DeadlineExceededError(StrCat(
                    "no report of the requested snapshot from ", source.place(), " within ",
                    AgeText(flags.timeout_seconds), " or before the run ended (", last_step, ")")),
                terminal);
  }
  if (flags.json) {
    terminal->JsonLine(ToJson(*listener.report()));
  } else {
    terminal->Block(ReportBlock(*listener.report(), clock->UnixSeconds(), terminal->style()));
  }
  return Finish(terminal);
}

// The result that a command waits for, and what may still come of it later.
struct Awaited {
  std::string_view name;
  RequestedWork::Read progress;
  std::string_view later;
};

int WaitForWork(const Awaited& work, int64_t number, RunSource& source, double timeout_seconds,
                Clock* clock, Terminal* terminal, WatchOptions options) {
  options = WithStatuses(options);
  options.after_sequence.reset();
  options.without_layers = true;
  RequestedWork listener(work.progress, number, clock->Monotonic() + FromSeconds(timeout_seconds),
                         clock, terminal);
  const absl::Status followed = source.Watch(options, &listener);
  terminal->Status("");
  if (!followed.ok()) return Fail(followed, terminal);
  if (terminal->closed()) return Finish(terminal);
  const WorkProgress last = work.progress(listener.status());
  if (last.failed) {
    return Fail(absl::AbortedError(StrCat(source.place(), ": ", last.text)), terminal);
  }
  if (!last.ended) {
    return Fail(
        absl::DeadlineExceededError(StrCat("no ", work.name, " from ", source.place(), " within ",
                                           AgeText(timeout_seconds), " or before the run ended (",
                                           last.text, "); ", work.later)),
        terminal);
  }
  terminal->Line(last.text);
  return Finish(terminal);
}

}  // namespace

int RunSnapshot(const SnapshotFlags& flags, Clock* clock, Terminal* terminal, WatchOptions pace) {
  const std::unique_ptr<RunSource> source = OpenRun(flags.target, clock);
  MonitorStatus before;
  if (flags.wait) {
    const absl::StatusOr<RunStatus> status = source->Status();
    if (!status.ok()) return Fail(status.status(), terminal);
    before = status->monitor;
  }
  const absl::StatusOr<int64_t> newest = source->Do(TakeSnapshot{});
  if (!newest.ok()) return Fail(newest.status(), terminal);
  if (flags.wait) return WaitForSnapshot(flags, *source, before, clock, terminal, pace);
  terminal->Line(StrCat("snapshot requested; its report comes after sequence ", *newest));
  return Finish(terminal);
}

int RunSlice(const SliceFlags& flags, Clock* clock, Terminal* terminal, WatchOptions pace) {
  const absl::StatusOr<QuantizationMethod> method = ParseQuantizationMethod(flags.method);
  if (!method.ok()) return Fail(method.status(), terminal);
  const std::unique_ptr<RunSource> source = OpenRun(flags.target, clock);
  MakeSlice slice{.method = *method, .bits = flags.bits, .points = flags.points};
  if (!flags.format.empty()) slice.format = flags.format;
  const absl::StatusOr<int64_t> number = source->Do(slice);
  if (!number.ok()) return Fail(number.status(), terminal);
  if (flags.wait) {
    const Awaited work{"slice", SliceProgress,
                       "if it is finished later, its file will be in the run directory"};
    return WaitForWork(work, *number, *source, flags.timeout_seconds, clock, terminal, pace);
  }
  terminal->Line(
      StrCat("slice requested; `ptqwatch status ", source->place(), "` shows its progress"));
  return Finish(terminal);
}

int RunCooldown(const CooldownFlags& flags, Clock* clock, Terminal* terminal, WatchOptions pace) {
  const std::unique_ptr<RunSource> source = OpenRun(flags.target, clock);
  if (flags.cancel) {
    const absl::Status cancelled = source->Do(CancelCooldown{}).status();
    if (!cancelled.ok()) return Fail(cancelled, terminal);
    terminal->Line("shadow cooldown cancelled");
    return Finish(terminal);
  }
  const absl::StatusOr<int64_t> number =
      source->Do(StartCooldown{.decay_steps = flags.decay_steps});
  if (!number.ok()) return Fail(number.status(), terminal);
  if (flags.wait) {
    const Awaited work{"prediction", CooldownProgress,
                       "if it is made later, it will be in the reports"};
    return WaitForWork(work, *number, *source, flags.timeout_seconds, clock, terminal, pace);
  }
  terminal->Line(StrCat("shadow cooldown requested; `ptqwatch status ", source->place(),
                        "` shows its progress"));
  return Finish(terminal);
}

}  // namespace ptqwatch::internal
