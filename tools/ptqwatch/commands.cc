#include "commands.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/strings.h"
#include "printable.h"
#include "report_proto.h"
#include "report_text.h"
#include "requested_report.h"
#include "requested_slice.h"
#include "shapes_file.h"
#include "status_text.h"
#include "watch_view.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::nanoseconds;

nanoseconds FromSeconds(double seconds) {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(seconds));
}

int Fail(const absl::Status& status, Terminal* terminal) {
  terminal->Notice(Message(status));
  return kExitFailed;
}

// The exit code of a command that has written all its output.
int Finish(Terminal* terminal) {
  return terminal->error().ok() ? 0 : Fail(terminal->error(), terminal);
}

int WaitForSnapshot(const SnapshotFlags& flags, const v1::RequestSnapshotResponse& requested,
                    Clock* clock, Terminal* terminal, FollowOptions options) {
  options.after_sequence = requested.last_sequence();
  options.without_layers = !flags.json;
  options.ask_status = true;
  options.exit_when_done = true;
  RequestedReport listener(requested, clock->Monotonic() + FromSeconds(flags.timeout_seconds),
                           clock, terminal);
  const absl::Status followed = Follower(flags.address, options, clock, &listener).Run();
  if (!followed.ok()) return Fail(followed, terminal);
  if (terminal->closed()) return Finish(terminal);
  if (!listener.report().has_value()) {
    if (listener.failed()) {
      return Fail(absl::AbortedError(StrCat("the snapshot at ", flags.address.ToString(),
                                            " failed; the trainer's log says why")),
                  terminal);
    }
    const v1::GetStatusResponse status = listener.status().value_or(v1::GetStatusResponse());
    const std::string last_step =
        status.has_step() ? StrCat("last step ", status.step(), ", ",
                                   AgoText(clock->UnixSeconds() - status.last_step_unix_seconds()))
                          : "no step yet";
    return Fail(
        absl::DeadlineExceededError(StrCat(
            "no report of the requested snapshot from ", flags.address.ToString(), " within ",
            AgeText(flags.timeout_seconds), " or before the run ended (", last_step, ")")),
        terminal);
  }
  if (flags.json) {
    const std::string json = ToJson(*listener.report());
    terminal->Line(terminal->terminal() ? PrintableJson(json) : json);
  } else {
    terminal->Block(ReportBlock(*listener.report(), clock->UnixSeconds(), terminal->style()));
  }
  return Finish(terminal);
}

int WaitForSlice(const SliceFlags& flags, int32_t number, Clock* clock, Terminal* terminal,
                 FollowOptions options) {
  options.after_sequence.reset();
  options.without_layers = true;
  options.ask_status = true;
  options.exit_when_done = true;
  RequestedSlice listener(number, clock->Monotonic() + FromSeconds(flags.timeout_seconds), clock,
                          terminal);
  const absl::Status followed = Follower(flags.address, options, clock, &listener).Run();
  terminal->Status("");
  if (!followed.ok()) return Fail(followed, terminal);
  if (terminal->closed()) return Finish(terminal);
  const v1::SliceStatus& slice = listener.slice();
  if (slice.state() == v1::SLICE_STATE_DONE) {
    terminal->Line(StrCat("slice ", Printable(slice.path())));
    return Finish(terminal);
  }
  if (slice.state() == v1::SLICE_STATE_FAILED) {
    return Fail(absl::AbortedError(StrCat(flags.address.ToString(), ": slice ", SliceText(slice))),
                terminal);
  }
  return Fail(absl::DeadlineExceededError(StrCat(
                  "no slice from ", flags.address.ToString(), " within ",
                  AgeText(flags.timeout_seconds), " or before the run ended (", SliceText(slice),
                  "); if it is finished later, its file will be in the run directory")),
              terminal);
}

}  // namespace

int RunWatch(const WatchFlags& flags, Clock* clock, Terminal* terminal, FollowOptions pace) {
  pace.after_sequence = flags.since;
  pace.without_layers = !flags.json;
  pace.ask_status = terminal->terminal();
  pace.with_events = true;
  pace.exit_when_done = flags.exit_when_done;
  if (flags.timeout_seconds.has_value()) pace.give_up_after = FromSeconds(*flags.timeout_seconds);
  WatchView view(&flags, clock, terminal);
  const absl::Status followed = Follower(flags.address, pace, clock, &view).Run();
  terminal->Status("");
  return followed.ok() ? Finish(terminal) : Fail(followed, terminal);
}

int RunStatus(const StatusFlags& flags, Clock* clock, Terminal* terminal) {
  Connection connection(flags.address);
  v1::GetStatusResponse status;
  if (const grpc::Status answer = connection.GetStatus(&status); !answer.ok()) {
    return Fail(ExplainFailure(answer, flags.address), terminal);
  }
  if (flags.json) {
    const absl::StatusOr<std::string> json = StatusJson(status);
    if (!json.ok()) return Fail(json.status(), terminal);
    terminal->Line(*json);
    return Finish(terminal);
  }
  terminal->Block(StatusBlock(status, clock->UnixSeconds()));
  if (status.last_sequence() == 0) return Finish(terminal);

  v1::ListReportsRequest request;
  // The newest report may be announced before it is available; then the one before is shown.
  request.set_after_sequence(std::max<int64_t>(0, status.last_sequence() - 2));
  request.set_without_layers(true);
  v1::ListReportsResponse newest;
  if (const grpc::Status answer = connection.ListReports(request, &newest); !answer.ok()) {
    return Fail(ExplainFailure(answer, flags.address), terminal);
  }
  if (newest.reports_size() > 0) {
    terminal->Block(StrCat("\n", ReportBlock(FromProto(newest.reports(newest.reports_size() - 1)),
                                             clock->UnixSeconds(), terminal->style())));
  }
  return Finish(terminal);
}

int RunSnapshot(const SnapshotFlags& flags, Clock* clock, Terminal* terminal, FollowOptions pace) {
  Connection connection(flags.address);
  v1::RequestSnapshotResponse requested;
  if (const grpc::Status answer = connection.RequestSnapshot(&requested); !answer.ok()) {
    return Fail(ExplainFailure(answer, flags.address), terminal);
  }
  if (flags.wait) {
    return WaitForSnapshot(flags, requested, clock, terminal, pace);
  }
  terminal->Line(
      StrCat("snapshot requested; its report comes after sequence ", requested.last_sequence()));
  return Finish(terminal);
}

int RunSlice(const SliceFlags& flags, Clock* clock, Terminal* terminal, FollowOptions pace) {
  Connection connection(flags.address);
  v1::RequestSliceRequest request;
  request.set_method(flags.method);
  request.set_bits(flags.bits);
  request.set_points(flags.points);
  v1::RequestSliceResponse requested;
  if (const grpc::Status answer = connection.RequestSlice(request, &requested); !answer.ok()) {
    return Fail(ExplainFailure(answer, flags.address), terminal);
  }
  if (flags.wait) return WaitForSlice(flags, requested.number(), clock, terminal, pace);
  terminal->Line(StrCat("slice requested; `ptqwatch status ", flags.address.ToString(),
                        "` shows its progress"));
  return Finish(terminal);
}

int RunPause(const PauseFlags& flags, Terminal* terminal) {
  const grpc::Status answer = Connection(flags.address).Pause();
  if (!answer.ok()) return Fail(ExplainFailure(answer, flags.address), terminal);
  terminal->Line("paused: no snapshots until `ptqwatch resume`");
  return Finish(terminal);
}

int RunResume(const ResumeFlags& flags, Terminal* terminal) {
  const grpc::Status answer = Connection(flags.address).Resume();
  if (!answer.ok()) return Fail(ExplainFailure(answer, flags.address), terminal);
  terminal->Line("resumed");
  return Finish(terminal);
}

int RunEvery(const EveryFlags& flags, Terminal* terminal) {
  const grpc::Status answer = Connection(flags.address).SetInterval(flags.steps);
  if (!answer.ok()) return Fail(ExplainFailure(answer, flags.address), terminal);
  terminal->Line(StrCat("a snapshot every ", flags.steps, flags.steps == 1 ? " step" : " steps"));
  return Finish(terminal);
}

int RunPlan(const PlanFlags& flags, Terminal* terminal) {
  const absl::StatusOr<std::vector<TensorShape>> shapes = ReadShapes(flags.shapes);
  if (!shapes.ok()) return Fail(shapes.status(), terminal);
  const absl::StatusOr<MachineRates> rates = MeasureMachineRates(flags.options.quantizers);
  if (!rates.ok()) return Fail(rates.status(), terminal);
  const absl::StatusOr<ShapePlan> plan = PlanFromShapes(*shapes, flags.options, *rates);
  if (!plan.ok()) return Fail(plan.status(), terminal);
  terminal->Block(plan->Describe());
  return Finish(terminal);
}

int RunCommand(const Command& command, Clock* clock, Terminal* terminal) {
  struct Runner {
    Clock* clock;
    Terminal* terminal;
    int operator()(const WatchFlags& flags) const { return RunWatch(flags, clock, terminal); }
    int operator()(const StatusFlags& flags) const { return RunStatus(flags, clock, terminal); }
    int operator()(const SnapshotFlags& flags) const { return RunSnapshot(flags, clock, terminal); }
    int operator()(const SliceFlags& flags) const { return RunSlice(flags, clock, terminal); }
    int operator()(const PauseFlags& flags) const { return RunPause(flags, terminal); }
    int operator()(const ResumeFlags& flags) const { return RunResume(flags, terminal); }
    int operator()(const EveryFlags& flags) const { return RunEvery(flags, terminal); }
    int operator()(const PlanFlags& flags) const { return RunPlan(flags, terminal); }
    int operator()(const PrintText& flags) const {
      terminal->Block(flags.text);
      return Finish(terminal);
    }
  };
  return std::visit(Runner{clock, terminal}, command);
}

}  // namespace ptqwatch::internal
