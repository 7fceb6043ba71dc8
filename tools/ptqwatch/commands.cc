#include "commands.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/status_macros.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "command_support.h"
#include "end_signals.h"
#include "history_command.h"
#include "printable.h"
#include "replay_command.h"
#include "report_command.h"
#include "report_proto.h"
#include "report_text.h"
#include "run_server.h"
#include "status_text.h"
#include "watch_command.h"

namespace ptqwatch::internal {
namespace {

// Of a server with several runs.
int ShowAllRuns(const StatusFlags& flags, Connection* connection, Clock* clock,
                Terminal* terminal) {
  v1::ListRunsResponse all;
  if (const grpc::Status answer = connection->ListRuns(&all); !answer.ok()) {
    return Fail(ExplainFailure(answer, flags.target), terminal);
  }
  for (const v1::GetStatusResponse& status : all.runs()) {
    if (flags.json) {
      const absl::StatusOr<std::string> json = StatusJson(status);
      if (!json.ok()) return Fail(json.status(), terminal);
      terminal->Line(*json);
    } else {
      const double age = clock->UnixSeconds() - status.last_step_unix_seconds();
      const bool has_age = status.last_step_unix_seconds() > 0;
      terminal->Line(StrCat(Printable(status.run()), ": ",
                            StatusLine(status, std::nullopt, std::nullopt),
                            has_age ? StrCat(" | last step ", AgoText(age)) : ""));
    }
  }
  return Finish(terminal);
}

// How long the past of a run is read at most before a command gives up.
constexpr std::chrono::seconds kMaxReading{60};
constexpr std::chrono::seconds kMaxWaitForRun{2};

// A run directory is served by this process to itself, for as long as the command runs. Null where
// the target is an address.
absl::StatusOr<std::unique_ptr<RunServer>> ServeToItself(Target& target) {
  if (target.run_dir.empty()) return nullptr;
  RunServerOptions options;
  options.run_dirs = {target.run_dir};
  options.allow_control = true;
  PTQWATCH_ASSIGN_OR_RETURN(std::unique_ptr<RunServer> server, RunServer::Start(options));
  const bool known = HoldsRun(target.run_dir);
  const bool following = server->WaitUntilFollowing(known ? kMaxReading : kMaxWaitForRun);
  if (!following && known) {
    return absl::DeadlineExceededError(StrCat("the journal in ", Quoted(target.run_dir),
                                              " was not read within ", kMaxReading.count(),
                                              " s; `ptqwatch serve` reads it once for all"));
  }
  if (!following) {
    return absl::NotFoundError(
        StrCat("no run in ", Quoted(target.run_dir), ": there is no journal and no status file"));
  }
  target.connect = [serving = server.get()] { return serving->Connect(); };
  return server;
}

}  // namespace

int RunWatch(const WatchFlags& flags, Clock* clock, Terminal* terminal, FollowOptions pace) {
  if (flags.timeout_seconds.has_value()) pace.give_up_after = FromSeconds(*flags.timeout_seconds);
  const absl::Status followed = WatchRun(flags, pace, clock, terminal);
  return followed.ok() ? Finish(terminal) : Fail(followed, terminal);
}

int RunStatus(const StatusFlags& flags, Clock* clock, Terminal* terminal) {
  Connection connection(flags.target);
  v1::GetStatusResponse status;
  if (const grpc::Status answer = connection.GetStatus(&status); !answer.ok()) {
    if (answer.error_code() == grpc::StatusCode::INVALID_ARGUMENT && flags.target.run.empty()) {
      return ShowAllRuns(flags, &connection, clock, terminal);
    }
    return Fail(ExplainFailure(answer, flags.target), terminal);
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
    return Fail(ExplainFailure(answer, flags.target), terminal);
  }
  if (newest.reports_size() > 0) {
    terminal->Block(StrCat("\n", ReportBlock(FromProto(newest.reports(newest.reports_size() - 1)),
                                             clock->UnixSeconds(), terminal->style())));
  }
  return Finish(terminal);
}

int RunPause(const PauseFlags& flags, Terminal* terminal) {
  const absl::Status sent = Send(flags.target, Pause{}).status();
  if (!sent.ok()) return Fail(sent, terminal);
  terminal->Line("paused: no snapshots until `ptqwatch resume`");
  return Finish(terminal);
}

int RunResume(const ResumeFlags& flags, Terminal* terminal) {
  const absl::Status sent = Send(flags.target, Resume{}).status();
  if (!sent.ok()) return Fail(sent, terminal);
  terminal->Line("resumed");
  return Finish(terminal);
}

int RunEvery(const EveryFlags& flags, Terminal* terminal) {
  const absl::Status sent = Send(flags.target, SetEvery{.steps = flags.steps}).status();
  if (!sent.ok()) return Fail(sent, terminal);
  terminal->Line(StrCat("a snapshot every ", flags.steps, flags.steps == 1 ? " step" : " steps"));
  return Finish(terminal);
}

int RunServe(const ServeFlags& flags, Terminal* terminal) {
  std::optional<EndSignals> signals(std::in_place);  // before the threads, which take after this
  if (flags.options.http.empty() && flags.options.grpc.empty()) {
    return Fail(absl::InvalidArgumentError("--http off --grpc off: nothing is left to serve"),
                terminal);
  }
  const absl::StatusOr<std::unique_ptr<RunServer>> server = RunServer::Start(flags.options);
  if (!server.ok()) return Fail(server.status(), terminal);
  if (!flags.options.http.empty()) {
    terminal->Line(StrCat("metrics ", flags.options.security.tls() ? "https" : "http", "://",
                          (*server)->http_address(), "/metrics"));
  }
  if (!flags.options.grpc.empty()) terminal->Line(StrCat("grpc ", (*server)->grpc_address()));
  signals->Wait();
  signals.reset();  // a second one ends the process at once, whatever a disk does
  return Finish(terminal);
}

int RunReplay(const ReplayFlags& flags, Terminal* terminal) {
  const absl::Status printed = PrintReplay(flags, terminal);
  return printed.ok() ? Finish(terminal) : Fail(printed, terminal);
}

int RunHistory(const HistoryFlags& flags, Terminal* terminal) {
  const absl::Status printed = PrintHistory(flags, terminal);
  return printed.ok() ? Finish(terminal) : Fail(printed, terminal);
}

int RunLayers(const LayersFlags& flags, Terminal* terminal) {
  const absl::Status printed = PrintLayers(flags, terminal);
  return printed.ok() ? Finish(terminal) : Fail(printed, terminal);
}

int RunReport(const ReportFlags& flags, Clock* clock, Terminal* terminal) {
  const absl::StatusOr<std::string> written = WriteRunPage(flags, clock);
  if (!written.ok()) return Fail(written.status(), terminal);
  terminal->Line(*written);
  return Finish(terminal);
}

int RunCommand(Invocation invocation, Clock* clock, Terminal* terminal) {
  std::unique_ptr<RunServer> server;
  const absl::Status served = std::visit(
      [&](auto& flags) -> absl::Status {
        using Flags = std::decay_t<decltype(flags)>;
        // The other commands go to the run without reading its past.
        if constexpr (std::is_same_v<Flags, WatchFlags> || std::is_same_v<Flags, StatusFlags> ||
                      std::is_same_v<Flags, SnapshotFlags> || std::is_same_v<Flags, SliceFlags> ||
                      std::is_same_v<Flags, CooldownFlags>) {
          if (!flags.target.run_dir.empty()) {
            terminal->Status(StrCat("reading ", Printable(flags.target.run_dir)));
          }
          auto own = ServeToItself(flags.target);
          terminal->Status("");
          PTQWATCH_ASSIGN_OR_RETURN(server, std::move(own));
        }
        return absl::OkStatus();
      },
      invocation);
  if (!served.ok()) return Fail(served, terminal);
  struct Runner {
    Clock* clock;
    Terminal* terminal;
    int operator()(const WatchFlags& flags) const { return RunWatch(flags, clock, terminal); }
    int operator()(const StatusFlags& flags) const { return RunStatus(flags, clock, terminal); }
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
    int operator()(const PrintText& flags) const {
      terminal->Block(flags.text);
      return Finish(terminal);
    }
  };
  return std::visit(Runner{clock, terminal}, invocation);
}

}  // namespace ptqwatch::internal
