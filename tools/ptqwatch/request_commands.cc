#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "command_support.h"
#include "commands.h"
#include "printable.h"
#include "report_text.h"
#include "requested_report.h"
#include "requested_work.h"
#include "status_text.h"

namespace ptqwatch::internal {
namespace {

int WaitForSnapshot(const SnapshotFlags& flags, const v1::GetStatusResponse& before, Clock* clock,
                    Terminal* terminal, FollowOptions options) {
  options.after_sequence = before.last_sequence();
  options.without_layers = !flags.json;
  options.ask_status = true;
  options.exit_when_done = true;
  RequestedReport listener(before, clock->Monotonic() + FromSeconds(flags.timeout_seconds), clock,
                           terminal);
  const absl::Status followed = Follower(flags.target, options, clock, &listener).Run();
  if (!followed.ok()) return Fail(followed, terminal);
  if (terminal->closed()) return Finish(terminal);
  if (!listener.report().has_value()) {
    if (listener.failed()) {
      return Fail(absl::AbortedError(StrCat("the snapshot at ", flags.target.ToString(),
                                            " failed; the trainer's log says why")),
                  terminal);
    }
    const v1::GetStatusResponse status = listener.status().value_or(v1::GetStatusResponse());
    const std::string last_step =
        status.has_step() ? StrCat("last step ", status.step(), ", ",
                                   AgoText(clock->UnixSeconds() - status.last_step_unix_seconds()))
                          : "no step yet";
    return Fail(
        absl::DeadlineExceededError(
            StrCat("no report of the requested snapshot from ", flags.target.ToString(), " within ",
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

// Follows the run until the requested work has ended, or the time is up.
absl::StatusOr<v1::GetStatusResponse> WaitForWork(const Target& target, RequestedWork::Read read,
                                                  int64_t number, double timeout_seconds,
                                                  Clock* clock, Terminal* terminal,
                                                  FollowOptions options) {
  options.after_sequence.reset();
  options.without_layers = true;
  options.ask_status = true;
  options.exit_when_done = true;
  RequestedWork listener(std::move(read), number, clock->Monotonic() + FromSeconds(timeout_seconds),
                         clock, terminal);
  const absl::Status followed = Follower(target, options, clock, &listener).Run();
  terminal->Status("");
  if (!followed.ok()) return followed;
  return listener.status();
}

int WaitForSlice(const SliceFlags& flags, int64_t number, Clock* clock, Terminal* terminal,
                 FollowOptions options) {
  const auto status = WaitForWork(flags.target, SliceProgress, number, flags.timeout_seconds, clock,
                                  terminal, options);
  if (!status.ok()) return Fail(status.status(), terminal);
  if (terminal->closed()) return Finish(terminal);
  const v1::SliceStatus& slice = status->slice();
  if (slice.state() == v1::SLICE_STATE_DONE) {
    terminal->Line(StrCat("slice ", Printable(slice.path())));
    return Finish(terminal);
  }
  if (slice.state() == v1::SLICE_STATE_FAILED) {
    return Fail(absl::AbortedError(StrCat(flags.target.ToString(), ": slice ", SliceText(slice))),
                terminal);
  }
  return Fail(absl::DeadlineExceededError(StrCat(
                  "no slice from ", flags.target.ToString(), " within ",
                  AgeText(flags.timeout_seconds), " or before the run ended (", SliceText(slice),
                  "); if it is finished later, its file will be in the run directory")),
              terminal);
}

int WaitForCooldown(const CooldownFlags& flags, int64_t number, Clock* clock, Terminal* terminal,
                    FollowOptions options) {
  const auto status = WaitForWork(flags.target, CooldownProgress, number, flags.timeout_seconds,
                                  clock, terminal, options);
  if (!status.ok()) return Fail(status.status(), terminal);
  if (terminal->closed()) return Finish(terminal);
  const v1::CooldownStatus& cooldown = status->cooldown();
  if (cooldown.state() == v1::COOLDOWN_STATE_DONE) {
    terminal->Line(StrCat("cooldown ", CooldownText(cooldown)));
    return Finish(terminal);
  }
  if (cooldown.state() == v1::COOLDOWN_STATE_FAILED) {
    return Fail(
        absl::AbortedError(StrCat(flags.target.ToString(), ": cooldown ", CooldownText(cooldown))),
        terminal);
  }
  return Fail(absl::DeadlineExceededError(
                  StrCat("no prediction from ", flags.target.ToString(), " within ",
                         AgeText(flags.timeout_seconds), " or before the run ended (",
                         CooldownText(cooldown), "); if it is made later, reports will have it")),
              terminal);
}

}  // namespace

int RunSnapshot(const SnapshotFlags& flags, Clock* clock, Terminal* terminal, FollowOptions pace) {
  v1::GetStatusResponse before;
  if (flags.wait) {
    Connection connection(flags.target);
    if (const grpc::Status answer = connection.GetStatus(&before); !answer.ok()) {
      return Fail(ExplainFailure(answer, flags.target), terminal);
    }
  }
  const absl::StatusOr<int64_t> newest = Send(flags.target, TakeSnapshot{});
  if (!newest.ok()) return Fail(newest.status(), terminal);
  if (flags.wait) return WaitForSnapshot(flags, before, clock, terminal, pace);
  terminal->Line(StrCat("snapshot requested; its report comes after sequence ", *newest));
  return Finish(terminal);
}

int RunSlice(const SliceFlags& flags, Clock* clock, Terminal* terminal, FollowOptions pace) {
  MakeSlice slice{.bits = flags.bits, .points = flags.points};
  const absl::StatusOr<QuantizationMethod> method = ParseQuantizationMethod(flags.method);
  if (!method.ok()) return Fail(method.status(), terminal);
  slice.method = *method;
  const absl::StatusOr<int64_t> number = Send(flags.target, slice);
  if (!number.ok()) return Fail(number.status(), terminal);
  if (flags.wait) return WaitForSlice(flags, *number, clock, terminal, pace);
  terminal->Line(StrCat("slice requested; `ptqwatch status ", flags.target.ToString(),
                        "` shows its progress"));
  return Finish(terminal);
}

int RunCooldown(const CooldownFlags& flags, Clock* clock, Terminal* terminal, FollowOptions pace) {
  if (flags.cancel) {
    const absl::Status cancelled = Send(flags.target, CancelCooldown{}).status();
    if (!cancelled.ok()) return Fail(cancelled, terminal);
    terminal->Line("shadow cooldown cancelled");
    return Finish(terminal);
  }
  const absl::StatusOr<int64_t> number =
      Send(flags.target, StartCooldown{.decay_steps = flags.decay_steps});
  if (!number.ok()) return Fail(number.status(), terminal);
  if (flags.wait) return WaitForCooldown(flags, *number, clock, terminal, pace);
  terminal->Line(StrCat("shadow cooldown requested; `ptqwatch status ", flags.target.ToString(),
                        "` shows its progress"));
  return Finish(terminal);
}

}  // namespace ptqwatch::internal
