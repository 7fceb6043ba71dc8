#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "absl/strings/str_replace.h"
#include "base/strings.h"
#include "beside_trainer.h"
#include "command_support.h"
#include "commands.h"
#include "end_signals.h"
#include "ptqwatch/config.h"
#include "ptqwatch/report.h"
#include "ptqwatch/run_server.h"

namespace ptqwatch::internal {
namespace {

// How long a server beside a trainer retries a busy address.
constexpr std::chrono::seconds kMaxBusyPort{5};

// Replaces the fields of ServeOptions in a message by the names of the command's options.
absl::Status InWordsOfTheCommand(const absl::Status& status) {
  return absl::Status(
      status.code(),
      absl::StrReplaceAll(status.message(),
                          {{"ServeOptions::allow_remote, which is false", "--allow-remote"},
                           {"ServeOptions.security.certificate_file", "--tls-cert"},
                           {"ServeOptions.security.private_key_file", "--tls-key"},
                           {"ServeOptions.security.client_ca_file", "--client-ca"},
                           {"ServeOptions.security.token_file", "--token-file"},
                           {"ServeOptions.targets_file", "--targets"},
                           {"ServeOptions.http, which is empty", "--http, which is off"}}));
}

// Runs a server started by a trainer. Its output goes to serve.log in the run directory.
int ServeBesideTrainer(ServeFlags flags, Terminal* terminal) {
  if (const absl::Status left = LeaveTrainer(flags.options.max_memory); !left.ok())
    return Fail(left, terminal);
  const EndSignals signals;
  const std::string& run_dir = flags.run_dirs[0];
  const std::string served =
      flags.beside.of_rank ? std::filesystem::path(run_dir).parent_path().string() : run_dir;
  absl::StatusOr<std::unique_ptr<RunServer>> server =
      RunServer::CreateForOne(served, flags.options);
  // The server of the previous run may linger at this address.
  const auto until = std::chrono::steady_clock::now() + kMaxBusyPort;
  while (absl::IsUnavailable(server.status()) && std::chrono::steady_clock::now() < until &&
         !signals.WaitFor(std::chrono::milliseconds(100))) {
    server = RunServer::CreateForOne(served, flags.options);
  }
  ServerHello hello{.version = PTQWATCH_VERSION_STRING,
                    .journal_schema = kReportSchemaVersion,
                    .process = getpid()};
  if (!server.ok()) {
    hello.error = std::string(Message(server.status()));
    SayHello(hello).IgnoreError();
    return Fail(server.status(), terminal);
  }
  if (!flags.options.http.empty()) hello.http = (*server)->http_address();
  if (!flags.options.grpc.empty()) hello.grpc = (*server)->grpc_address();
  if (const absl::Status said = SayHello(hello); !said.ok()) return Fail(said, terminal);
  WaitForEndOfRun(flags.beside, run_dir, signals);
  (*server)->Stop();
  if (flags.beside.remove_run_dir) {
    std::error_code ignored;
    std::filesystem::remove_all(run_dir, ignored);
  }
  return Finish(terminal);
}

}  // namespace

int RunServe(const ServeFlags& flags, Terminal* terminal) {
  if (flags.beside.trainer > 0) return ServeBesideTrainer(flags, terminal);
  std::optional<EndSignals> signals(
      std::in_place);  // before the threads, which inherit the signal mask
  if (flags.options.http.empty() && flags.options.grpc.empty()) {
    return Fail(absl::InvalidArgumentError("--http off --grpc off: nothing is left to serve"),
                terminal);
  }
  const absl::StatusOr<std::unique_ptr<RunServer>> server =
      RunServer::Create(flags.run_dirs, flags.options);
  if (!server.ok()) return Fail(InWordsOfTheCommand(server.status()), terminal);
  if (!flags.options.http.empty()) {
    terminal->Line(StrCat("metrics ", flags.options.security.tls() ? "https" : "http", "://",
                          (*server)->http_address(), "/metrics"));
  }
  if (!flags.options.grpc.empty()) terminal->Line(StrCat("grpc ", (*server)->grpc_address()));
  signals->Wait();
  signals.reset();  // a second signal then ends the process even if a disk hangs
  return Finish(terminal);
}

}  // namespace ptqwatch::internal
