#include "commands.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "base/strings.h"
#include "printable.h"
#include "report_proto.h"
#include "status_text.h"
#include "watch_view.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::nanoseconds;

nanoseconds FromSeconds(double seconds) {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(seconds));
}

int Fail(const absl::Status& status, Terminal* terminal) {
  terminal->Notice(std::string(status.message()));
  return kExitFailed;
}

// The exit code of a command that has written all it had to say.
int Finish(Terminal* terminal) {
  return terminal->error().ok() ? 0 : Fail(terminal->error(), terminal);
}

// Without a step for so long, `snapshot --wait` says what it waits for.
constexpr std::chrono::seconds kNoSteps(10);

// Waits for the report of a requested snapshot.
class RequestedReport final : public FollowListener {
 public:
  /// `requested`: what the server said to the request.
  RequestedReport(const v1::RequestSnapshotResponse& requested, nanoseconds deadline, Clock* clock,
                  Terminal* terminal)
      : first_step_(requested.has_step() ? requested.step() : INT64_MIN),
        deadline_(deadline),
        clock_(clock),
        terminal_(terminal),
        last_step_time_(clock->Monotonic()) {}

  bool OnReport(const v1::Report& report, int64_t) override {
    // The last snapshot of a run stands for one that was requested too late for a step of its own.
    const bool asked_for = report.trigger() == v1::SNAPSHOT_TRIGGER_REQUEST ||
                           report.trigger() == v1::SNAPSHOT_TRIGGER_FINISH;
    if (!asked_for || report.step() < first_step_) return true;
    report_ = FromProto(report);
    return false;
  }
  void OnStatus(const v1::GetStatusResponse& status) override {
    if (!status_.has_value()) {
      unusable_before_ = Unusable(status);
    } else if (status.steps_total() != status_->steps_total()) {
      last_step_time_ = clock_->Monotonic();
    }
    status_ = status;
    failed_ = Unusable(status) > unusable_before_;
  }
  void OnNotice(std::string_view text) override { terminal_->Notice(text); }
  bool OnTick(bool) override {
    if (!told_ && status_.has_value() && clock_->Monotonic() - last_step_time_ >= kNoSteps) {
      told_ = true;
      terminal_->Notice("the run makes no steps; the snapshot is taken at the next one");
    }
    return !failed_ && clock_->Monotonic() < deadline_ && !terminal_->closed();
  }

  const std::optional<AnalyzedReport>& report() const { return report_; }
  const std::optional<v1::GetStatusResponse>& status() const { return status_; }
  bool failed() const { return failed_; }

 private:
  // Snapshots that were due and came to nothing; a request is not tried again then.
  static int64_t Unusable(const v1::GetStatusResponse& status) {
    int64_t count = 0;
    for (const char* result : {"failed", "skipped_mismatch"}) {
      const auto found = status.snapshots().find(result);
      if (found != status.snapshots().end()) count += found->second;
    }
    return count;
  }

  const int64_t first_step_;
  const nanoseconds deadline_;
  Clock* const clock_;
  Terminal* const terminal_;
  nanoseconds last_step_time_;
  std::optional<AnalyzedReport> report_;
  std::optional<v1::GetStatusResponse> status_;
  int64_t unusable_before_ = 0;
  bool failed_ = false;
  bool told_ = false;
};

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
                                            " came to nothing; the trainer's log says why")),
                  terminal);
    }
    const v1::GetStatusResponse status = listener.status().value_or(v1::GetStatusResponse());
    const std::string last_step =
        status.has_step()
            ? StrCat("last step ", status.step(), ", ",
                     AgeText(clock->UnixSeconds() - status.last_step_unix_seconds()), " ago")
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

// Waits for the end of a slice and shows how far it is.
class RequestedSlice final : public FollowListener {
 public:
  RequestedSlice(int32_t number, nanoseconds deadline, Clock* clock, Terminal* terminal)
      : number_(number), deadline_(deadline), clock_(clock), terminal_(terminal) {}

  bool OnReport(const v1::Report&, int64_t) override { return true; }
  void OnStatus(const v1::GetStatusResponse& status) override {
    // Another one: the process was started anew, or somebody asked again after this one's end.
    lost_ = status.slice().number() != number_;
    if (lost_) return;
    const v1::SliceState before = slice_.state();
    slice_ = status.slice();
    if (ended()) return;
    if (terminal_->terminal()) {
      terminal_->Status(SliceText(slice_));
    } else if (slice_.state() != before) {
      terminal_->Line(SliceText(slice_));
    }
  }
  void OnNotice(std::string_view text) override { terminal_->Notice(text); }
  bool OnTick(bool) override {
    return !ended() && !lost_ && clock_->Monotonic() < deadline_ && !terminal_->closed();
  }

  bool ended() const {
    return slice_.state() == v1::SLICE_STATE_DONE || slice_.state() == v1::SLICE_STATE_FAILED;
  }
  const v1::SliceStatus& slice() const { return slice_; }

 private:
  const int32_t number_;
  const nanoseconds deadline_;
  Clock* const clock_;
  Terminal* const terminal_;
  v1::SliceStatus slice_;
  bool lost_ = false;
};

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
    return Fail(absl::AbortedError(
                    StrCat("the slice at ", flags.address.ToString(), ": ", SliceText(slice))),
                terminal);
  }
  return Fail(absl::DeadlineExceededError(StrCat(
                  "no slice from ", flags.address.ToString(), " within ",
                  AgeText(flags.timeout_seconds), " or before the run ended (", SliceText(slice),
                  "); if it was made after all, its file is in the run directory")),
              terminal);
}

}  // namespace

int RunWatch(const WatchFlags& flags, Clock* clock, Terminal* terminal, FollowOptions pace) {
  pace.after_sequence = flags.since;
  pace.without_layers = !flags.json;
  pace.ask_status = terminal->terminal();
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
  // The newest may be announced before it can be had; the one before is the newest then.
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
                        "` says how far it is"));
  return Finish(terminal);
}

int RunCommand(const Command& command, Clock* clock, Terminal* terminal) {
  return std::visit(
      [&](const auto& flags) {
        using Flags = std::decay_t<decltype(flags)>;
        if constexpr (std::is_same_v<Flags, WatchFlags>) {
          return RunWatch(flags, clock, terminal);
        } else if constexpr (std::is_same_v<Flags, StatusFlags>) {
          return RunStatus(flags, clock, terminal);
        } else if constexpr (std::is_same_v<Flags, SnapshotFlags>) {
          return RunSnapshot(flags, clock, terminal);
        } else if constexpr (std::is_same_v<Flags, SliceFlags>) {
          return RunSlice(flags, clock, terminal);
        } else {
          terminal->Block(flags.text);
          return Finish(terminal);
        }
      },
      command);
}

}  // namespace ptqwatch::internal
