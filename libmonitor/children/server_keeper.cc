#include "children/server_keeper.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/guard.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "ptqwatch/config.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Interval for checking on a launcher.
constexpr milliseconds kLook{20};
// Longest time from a server's last closed file until it can be waited for.
constexpr milliseconds kMaxEnding{1'000};

absl::Status CheckHello(const ServerHello& hello, const std::string& program) {
  if (!hello.error.empty()) return absl::UnavailableError(hello.error);
  const auto minor = [](std::string_view version) {
    return version.substr(0, version.find('.', version.find('.') + 1));
  };
  if (minor(hello.version) != minor(PTQWATCH_VERSION_STRING) ||
      hello.journal_schema != kReportSchemaVersion) {
    return absl::FailedPreconditionError(
        StrCat("'", program, "' is version ", hello.version, ", and this library is ",
               PTQWATCH_VERSION_STRING, ": set ServeOptions.program to one of this version"));
  }
  return absl::OkStatus();
}

}  // namespace

// State shared by the object and its thread, which may be left behind while it writes to the log.
struct ServerKeeper::Shared {
  Shared(ServeOptions options_in, ServedDirectory directory_in, Listener listener_in,
         const Timing& timing_in)
      : options(std::move(options_in)),
        directory(std::move(directory_in)),
        listener(std::move(listener_in)),
        timing(timing_in),
        wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Shared() {
    if (wake >= 0) close(wake);
  }

  void Run();
  // Runs one server until it ends or Stop is called. True if it served.
  bool RunOnce();
  absl::Status WaitForLine(LaunchedServer& server);
  // Reports that the server serves, then waits until it ends or Stop is called.
  void WaitForEnd(LaunchedServer& server);
  void Set(ServerState state, absl::Status failure, const ServerHello& hello);
  void Fail(const absl::Status& failure);
  bool stopping() const {
    MutexLock lock(mutex);
    return stop;
  }
  // Waits until the descriptor (-1: none) is readable, Stop is called, or `until`.
  void Wait(int descriptor, steady_clock::time_point until) const;

  ServeOptions options;  // for the thread
  const ServedDirectory directory;
  const Listener listener;
  const Timing timing;
  const int wake;
  std::string program;

  mutable Mutex mutex;
  mutable CondVar changed;
  ServerStatus status ABSL_GUARDED_BY(mutex) = {.state = ServerState::kStarting};
  bool announced_failure ABSL_GUARDED_BY(mutex) = false;
  bool stop ABSL_GUARDED_BY(mutex) = false;
  bool alive ABSL_GUARDED_BY(mutex) = false;
  bool ended ABSL_GUARDED_BY(mutex) = false;
};

void ServerKeeper::Shared::Wait(int descriptor, steady_clock::time_point until) const {
  pollfd waits[] = {{.fd = wake, .events = POLLIN, .revents = 0},
                    {.fd = descriptor, .events = POLLIN, .revents = 0}};
  const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now()).count();
  poll(waits, 2, static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
}

void ServerKeeper::Shared::Set(ServerState state, absl::Status failure, const ServerHello& hello) {
  bool announce = false;
  {
    MutexLock lock(mutex);
    status.state = state;
    const char* const scheme = options.security.tls() ? "https://" : "http://";
    status.metrics = hello.http.empty() ? "" : StrCat(scheme, hello.http, "/metrics");
    status.grpc = hello.grpc;
    status.reason = std::string(Message(failure));
    alive = state == ServerState::kServing;
    if (state == ServerState::kServing) {
      announce = std::exchange(announced_failure, false) || status.restarts > 0;
    } else if (state == ServerState::kFailed) {
      announce = !std::exchange(announced_failure, true);
    }
    if (listener.on_status) listener.on_status(status, alive ? hello.process : 0);
    changed.SignalAll();
  }
  if (!announce) return;
  const std::string message = failure.ok()
                                  ? StrCat("the server of '", directory.served(), "' serves again")
                                  : StrCat("no server beside this run: ", failure,
                                           "; to serve it: ptqwatch serve ", directory.served());
  Log(failure.ok() ? Severity::kInfo : Severity::kError, message);
  if (listener.on_change) listener.on_change(failure, message);
}

void ServerKeeper::Shared::Fail(const absl::Status& failure) {
  Set(ServerState::kFailed, failure, {});
}

absl::Status ServerKeeper::Shared::WaitForLine(LaunchedServer& server) {
  const auto until = steady_clock::now() + timing.hello;
  while (!server.hello()) {
    if (stopping()) return absl::CancelledError("stopped");
    if (server.ended()) {
      return absl::UnavailableError(
          StrCat("'", program, "' ended; its output is in '", directory.run_dir, "/serve.log'"));
    }
    if (steady_clock::now() >= until) {
      return absl::DeadlineExceededError(
          StrCat("'", program, "' has said nothing for ", timing.hello.count() / 1000, " s"));
    }
    Wait(server.descriptor(), std::min(until, steady_clock::now() + kLook));
    server.Read();
  }
  PTQWATCH_RETURN_IF_ERROR(server.hello()->status());
  return CheckHello(**server.hello(), program);
}

bool ServerKeeper::Shared::RunOnce() {
  absl::StatusOr<LaunchedServer> server =
      LaunchedServer::Launch(program, ServerArguments(options, directory, getpid()),
                             ServerEnvironment(options), StrCat(directory.run_dir, "/serve.log"));
  if (!server.ok()) {
    Fail(server.status());
    return false;
  }
  const absl::Status said = WaitForLine(*server);
  if (said.ok()) {
    WaitForEnd(*server);
  } else if (!absl::IsCancelled(said)) {
    Fail(said);
  }
  const auto until = steady_clock::now() + kMaxEnding;
  while (server->ended() && !server->WaitForChildren() && !stopping() &&
         steady_clock::now() < until) {
    Wait(-1, steady_clock::now() + kLook);
  }
  return said.ok();
}

void ServerKeeper::Shared::WaitForEnd(LaunchedServer& server) {
  const ServerHello& hello = **server.hello();
  Set(ServerState::kServing, absl::OkStatus(), hello);
  // The next server takes the same ports, even if any port would do.
  options.http = hello.http;
  options.grpc = hello.grpc;
  while (!stopping() && !server.ended()) {
    Wait(server.descriptor(), steady_clock::now() + std::chrono::minutes(1));
    server.Read();
  }
}

void ServerKeeper::Shared::Run() {
  milliseconds pause = timing.first_pause;
  while (!stopping()) {
    const auto begun = steady_clock::now();
    const bool served = RunOnce();
    if (stopping()) return;
    if (served && steady_clock::now() - begun >= timing.short_life) pause = timing.first_pause;
    if (served) {
      Set(ServerState::kRestarting, absl::UnavailableError("it ended and will be started again"),
          {});
    }
    const auto next = steady_clock::now() + pause;
    pause = std::min(2 * pause, timing.longest_pause);
    while (!stopping() && steady_clock::now() < next) Wait(-1, next);
    MutexLock lock(mutex);
    ++status.restarts;
  }
}

absl::StatusOr<std::unique_ptr<ServerKeeper>> ServerKeeper::Start(const ServeOptions& options,
                                                                  const ServedDirectory& directory,
                                                                  Listener listener,
                                                                  const Timing& timing) {
  auto shared = std::make_shared<Shared>(options, directory, std::move(listener), timing);
  if (shared->wake < 0) return absl::ResourceExhaustedError("no descriptor is left");
  PTQWATCH_ASSIGN_OR_RETURN(shared->program, FindServerProgram(options.program));
  Log(Severity::kInfo, StrCat("serving '", directory.served(), "' by '", shared->program, "'"));
  if (shared->listener.on_status) {
    shared->listener.on_status({.state = ServerState::kStarting}, /*process=*/0);
  }
  std::unique_ptr<ServerKeeper> keeper(new ServerKeeper(shared));
  PTQWATCH_ASSIGN_OR_RETURN(keeper->thread_, StartThread("ptqw-server", [shared] {
                              shared->Run();
                              MutexLock lock(shared->mutex);
                              shared->ended = true;
                              shared->changed.SignalAll();
                            }));
  return keeper;
}

absl::Status ServerKeeper::Serve(const ServeOptions& options,
                                 const absl::StatusOr<ServedDirectory>& directory,
                                 Listener listener, milliseconds wait,
                                 std::unique_ptr<ServerKeeper>& keeper) {
  const absl::Status started = Guard([&]() -> absl::Status {
    PTQWATCH_RETURN_IF_ERROR(directory.status());
    PTQWATCH_RETURN_IF_ERROR(Validate(options));
    PTQWATCH_ASSIGN_OR_RETURN(keeper, Start(options, *directory, listener, {}));
    return absl::OkStatus();
  });
  if (started.ok()) {
    const ServerStatus served = keeper->WaitForHello(wait);
    if (served.state != ServerState::kFailed) return absl::OkStatus();
    return absl::UnavailableError(served.reason);
  }
  listener.on_status({.state = ServerState::kFailed, .reason = std::string(Message(started))}, 0);
  std::string message = StrCat("no server beside this run: ", started);
  if (directory.ok()) message += StrCat("; to serve it: ptqwatch serve ", directory->served());
  Log(Severity::kError, message);
  listener.on_change(started, message);
  return started;
}

ServerStatus ServerKeeper::WaitForHello(milliseconds timeout) const {
  const auto until = steady_clock::now() + timeout;
  MutexLock lock(shared_->mutex);
  while (shared_->status.state == ServerState::kStarting &&
         shared_->changed.WaitUntil(shared_->mutex, until)) {
  }
  return shared_->status;
}

ServerStatus ServerKeeper::status() const {
  MutexLock lock(shared_->mutex);
  return shared_->status;
}

void ServerKeeper::Stop(milliseconds deadline) {
  const auto until = steady_clock::now() + deadline;
  MutexLock lock(shared_->mutex);
  if (std::exchange(shared_->stop, true)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(shared_->wake, &one, sizeof(one));
  while (thread_.joinable() && !shared_->ended &&
         shared_->changed.WaitUntil(shared_->mutex, until)) {
  }
  const bool ended = shared_->ended;
  lock.Unlock();
  if (thread_.joinable() && ended) thread_.Join();
  thread_.Detach();
}

ServerKeeper::~ServerKeeper() {
  Stop(std::chrono::seconds(1));
  MutexLock lock(shared_->mutex);
  if (!shared_->directory.remove || shared_->alive) return;
  std::error_code ignored;
  std::filesystem::remove_all(shared_->directory.run_dir, ignored);
}

absl::StatusOr<std::string> MakeServedDirectory() {
  std::string tried;
  for (const char* variable : {"XDG_RUNTIME_DIR", "TMPDIR", ""}) {
    const char* const parent = *variable == '\0' ? "/tmp" : secure_getenv(variable);
    if (parent == nullptr || *parent != '/') continue;
    std::string path = StrCat(parent, "/ptqwatch-XXXXXX");
    if (mkdtemp(path.data()) != nullptr) return path;
    const absl::Status failed = absl::ErrnoToStatus(errno, StrCat("'", parent, "'"));
    tried += StrCat(tried.empty() ? "" : ", ", Message(failed));
  }
  return absl::UnavailableError(StrCat("no directory to serve a run from: ", tried));
}

}  // namespace ptqwatch::internal
