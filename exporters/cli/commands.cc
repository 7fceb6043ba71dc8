#include "commands.h"

#include <chrono>
#include <optional>
#include <string>
#include <type_traits>

#include "google/protobuf/util/json_util.h"
#include "printable.h"
#include "report/str_cat.h"
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

// Waits for the report of a requested snapshot.
class RequestedReport final : public FollowListener {
 public:
  RequestedReport(nanoseconds deadline, Clock* clock, Terminal* terminal)
      : deadline_(deadline), clock_(clock), terminal_(terminal) {}

  bool OnReport(const v1::Report& report, int64_t) override {
    if (report.trigger() != v1::SNAPSHOT_TRIGGER_REQUEST) return true;
    report_ = FromProto(report);
    return false;
  }
  void OnStatus(const v1::GetStatusResponse& status) override { status_ = status; }
  void OnNotice(std::string_view text) override { terminal_->Notice(text); }
  bool OnTick(bool) override { return clock_->Monotonic() < deadline_ && !terminal_->closed(); }

  const std::optional<AnalyzedReport>& report() const { return report_; }
  const v1::GetStatusResponse& status() const { return status_; }

 private:
  const nanoseconds deadline_;
  Clock* const clock_;
  Terminal* const terminal_;
  std::optional<AnalyzedReport> report_;
  v1::GetStatusResponse status_;
};

int WaitForSnapshot(const SnapshotFlags& flags, int64_t last_sequence, Clock* clock,
                    Terminal* terminal, FollowOptions options) {
  options.after_sequence = last_sequence;
  options.without_layers = !flags.json;
  options.ask_status = true;
  options.exit_when_done = true;
  RequestedReport listener(clock->Monotonic() + FromSeconds(flags.timeout_seconds), clock,
                           terminal);
  const absl::Status followed = Follower(flags.address, options, clock, &listener).Run();
  if (!followed.ok()) return Fail(followed, terminal);
  if (terminal->closed()) return Finish(terminal);
  if (!listener.report().has_value()) {
    const v1::GetStatusResponse& status = listener.status();
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
    terminal->Line(ToJson(*listener.report()));
  } else {
    terminal->Block(ReportBlock(*listener.report(), clock->UnixSeconds(), terminal->style()));
  }
  return Finish(terminal);
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
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = true;
    options.always_print_primitive_fields = true;
    std::string json;
    const auto printed = google::protobuf::util::MessageToJsonString(status, &json, options);
    if (!printed.ok()) return Fail(absl::InternalError(printed.ToString()), terminal);
    terminal->Line(json);
    return Finish(terminal);
  }
  terminal->Block(StatusBlock(status, clock->UnixSeconds()));
  if (status.last_sequence() == 0) return Finish(terminal);

  v1::ListReportsRequest request;
  request.set_after_sequence(status.last_sequence() - 1);
  request.set_limit(1);
  request.set_without_layers(true);
  v1::ListReportsResponse newest;
  if (const grpc::Status answer = connection.ListReports(request, &newest); !answer.ok()) {
    return Fail(ExplainFailure(answer, flags.address), terminal);
  }
  if (newest.reports_size() > 0) {
    terminal->Block(StrCat(
        "\n", ReportBlock(FromProto(newest.reports(0)), clock->UnixSeconds(), terminal->style())));
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
    return WaitForSnapshot(flags, requested.last_sequence(), clock, terminal, pace);
  }
  terminal->Line(
      StrCat("snapshot requested; its report comes after sequence ", requested.last_sequence()));
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
        } else {
          terminal->Block(flags.text);
          return Finish(terminal);
        }
      },
      command);
}

}  // namespace ptqwatch::internal
