#include "ptqwatch/monitor.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/float_environment.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/longest_time.h"
#include "base/process_end.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "children/server_keeper.h"
#include "children/server_program.h"
#include "monitor/inert_monitor.h"
#include "monitor/rank_place.h"
#include "monitor/running_monitor.h"

namespace ptqwatch {
namespace {

// How long Create waits for the server.
constexpr std::chrono::seconds kWaitForServer{5};
// How long the end of the process waits for the server's keeper.
constexpr std::chrono::seconds kServerTimeAtEnd{1};

bool Disabled() {
  const char* value = std::getenv("PTQWATCH_DISABLE");
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

// Absolute, because the trainer may change its working directory.
std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return path.empty() || error ? path : absolute.string();
}

}  // namespace

struct Monitor::State {
  const internal::ProcessMark process = {};
  std::unique_ptr<internal::ServerKeeper> server = nullptr;  // stopped first, destroyed last
  std::unique_ptr<internal::RunningMonitor> running = nullptr;
  std::unique_ptr<internal::InertMonitor> inert = nullptr;
  std::string temporary_dir = {};                            // for a run without a run_dir
  absl::Status no_directory = absl::OkStatus();              // why there is no directory to serve
  std::optional<internal::AtProcessEnd> server_at_end = {};  // last: may be stopping it

  internal::Publisher& publisher() const {
    return running != nullptr ? running->publisher() : inert->publisher();
  }
  void OnServerChange(const absl::Status& failure, const std::string& message) const {
    publisher().PublishEvent(
        {Event::Kind::kServerFailed, failure.ok() ? Severity::kInfo : Severity::kError,
         publisher().status().step.value_or(0), Clock::Real()->UnixSeconds(), message});
  }
  // Makes a directory for a run that only its server reads. Serve reports an error.
  void MakeTemporaryDir(std::string& run_dir);
  absl::Status Serve(const ServeOptions& options, const std::string& run_dir, bool of_rank);
  ~State();
};

Monitor::State::~State() {
  if (temporary_dir.empty() || server != nullptr) return;  // otherwise the server removes it
  std::error_code ignored;
  std::filesystem::remove_all(temporary_dir, ignored);
}

void Monitor::State::MakeTemporaryDir(std::string& run_dir) {
  absl::StatusOr<std::string> made = internal::MakeServedDirectory();
  no_directory = made.status();
  if (made.ok()) run_dir = temporary_dir = *std::move(made);
}

absl::Status Monitor::State::Serve(const ServeOptions& options, const std::string& run_dir,
                                   bool of_rank) {
  const internal::ServedDirectory directory{
      .run_dir = run_dir, .remove = !temporary_dir.empty(), .of_rank = of_rank};
  const auto start = [&]() -> absl::Status {
    PTQWATCH_RETURN_IF_ERROR(no_directory);
    PTQWATCH_RETURN_IF_ERROR(Validate(options));
    PTQWATCH_ASSIGN_OR_RETURN(
        server, internal::ServerKeeper::Start(
                    options, directory,
                    {[this](const ServerStatus& status, pid_t) { publisher().SetServer(status); },
                     [this](const absl::Status& failure, const std::string& message) {
                       OnServerChange(failure, message);
                     }},
                    {}));
    if (running != nullptr) running->WatchServer(server->CpuSeconds());
    server_at_end.emplace([this] { server->Stop(kServerTimeAtEnd); });
    const ServerStatus served = server->WaitForHello(kWaitForServer);
    if (served.state == ServerState::kFailed) return absl::UnavailableError(served.reason);
    return absl::OkStatus();
  };
  const absl::Status started = start();
  if (server != nullptr || started.ok()) return started;
  publisher().SetServer(
      {.state = ServerState::kFailed, .reason = std::string(internal::Message(started))});
  std::string message = internal::StrCat("no server beside this run: ", started);
  if (!run_dir.empty()) {
    message += internal::StrCat("; to serve it: ptqwatch serve ", directory.served());
  }
  internal::Log(Severity::kError, message);
  OnServerChange(started, message);
  return started;
}

absl::StatusOr<std::unique_ptr<internal::RunningMonitor>> Monitor::Start(
    std::unique_ptr<Subject> subject, MonitorOptions options,
    std::vector<std::unique_ptr<Exporter>>& exporters, internal::WorkerLink* link) {
  if (subject == nullptr) return absl::InvalidArgumentError("the subject is null");
  for (const auto& exporter : exporters) {
    if (exporter == nullptr) return absl::InvalidArgumentError("an exporter is null");
  }
  PTQWATCH_RETURN_IF_ERROR(Validate(options));
  return internal::Guard([&]() -> absl::StatusOr<std::unique_ptr<internal::RunningMonitor>> {
    auto running = std::make_unique<internal::RunningMonitor>(options, std::move(subject), link);
    PTQWATCH_RETURN_IF_ERROR(running->Start(options, exporters));
    return running;
  });
}

absl::StatusOr<std::unique_ptr<Monitor>> Monitor::Create(
    std::unique_ptr<Subject> subject, MonitorOptions options,
    std::vector<std::unique_ptr<Exporter>> exporters) {
  return Create(std::move(subject), std::move(options), std::move(exporters), nullptr);
}

absl::StatusOr<std::unique_ptr<Monitor>> Monitor::Create(
    std::unique_ptr<Subject> subject, MonitorOptions options,
    std::vector<std::unique_ptr<Exporter>> exporters, internal::WorkerLink* link) {
  const internal::DefaultFloatEnvironment environment;
  return internal::Guard([&]() -> absl::StatusOr<std::unique_ptr<Monitor>> {
    auto state = std::make_unique<State>();
    if (Disabled()) return std::unique_ptr<Monitor>(new Monitor(std::move(state)));
    options.run_dir = AbsolutePath(options.run_dir);
    const absl::Status placed = internal::EnterRank(options);
    // Without its place, a rank has no directory of its own.
    if (!placed.ok()) options.run_dir.clear();
    if (const std::string why = internal::WhyAnotherServes(options.rank.value_or(0));
        options.serve && !why.empty()) {
      internal::Log(Severity::kInfo,
                    internal::StrCat("no server beside this process: ", why,
                                     "; only local rank 0 starts one on this machine"));
      options.serve.reset();
    }
    if (options.serve && options.run_dir.empty()) {
      if (!placed.ok()) {
        state->no_directory = placed;
      } else if (options.ranks) {
        state->no_directory = absl::InvalidArgumentError(
            "MonitorOptions.run_dir is empty: ranks are served from a directory that they share");
      } else {
        state->MakeTemporaryDir(options.run_dir);
      }
    }
    auto running = placed.ok() ? Start(std::move(subject), options, exporters, link)
                               : absl::StatusOr<std::unique_ptr<internal::RunningMonitor>>(placed);
    if (running.ok()) {
      state->running = *std::move(running);
    } else if (options.on_failure == OnFailure::kError) {
      return running.status();
    } else {
      std::erase(exporters, nullptr);
      if (options.clock == nullptr) options.clock = Clock::Real();
      state->inert =
          std::make_unique<internal::InertMonitor>(options, running.status(), std::move(exporters));
    }
    std::unique_ptr<Monitor> monitor(new Monitor(std::move(state)));  // stops whatever has started
    if (options.serve) {
      const absl::Status served =
          monitor->state_->Serve(*options.serve, options.run_dir, options.rank.has_value());
      if (!served.ok() && options.on_failure == OnFailure::kError) return served;
    }
    return monitor;
  });
}

Monitor::Monitor(std::unique_ptr<State> state) : state_(std::move(state)) {}

Monitor::~Monitor() {
  if (state_->process.here()) {
    Stop(std::chrono::seconds(2)).IgnoreError();
  } else {
    (void)state_.release();  // its threads and sockets belong to the parent
  }
}

internal::RunningMonitor* Monitor::running() const noexcept {
  return state_->process.here() ? state_->running.get() : nullptr;
}

internal::InertMonitor* Monitor::inert() const noexcept {
  return state_->process.here() ? state_->inert.get() : nullptr;
}

absl::Status Monitor::creation_status() const {
  return inert() == nullptr ? absl::OkStatus() : inert()->why();
}

void Monitor::OnStep(const StepInfo& info) noexcept {
  if (auto* monitor = running()) {
    monitor->OnStep(info);
  } else if (auto* nothing = inert()) {
    nothing->OnStep(info);
  }
}

void Monitor::BeforeUpdate() noexcept {
  if (auto* monitor = running()) monitor->BeforeUpdate();
}

Monitor::IdleScope Monitor::Idle() noexcept {
  if (auto* monitor = running()) monitor->BeginIdle();
  return IdleScope(this);
}

Monitor::IdleScope::IdleScope(IdleScope&& other) noexcept
    : monitor_(std::exchange(other.monitor_, nullptr)) {}

Monitor::IdleScope::~IdleScope() {
  if (monitor_ == nullptr) return;
  if (auto* monitor = monitor_->running()) monitor->EndIdle();
}

absl::Status Monitor::Finish(std::chrono::milliseconds timeout, const CancelToken& cancel) {
  if (auto* monitor = running()) {
    return internal::Guard([&] { return monitor->Finish(internal::AtMostAYear(timeout), cancel); });
  }
  return creation_status();
}

absl::Status Monitor::Stop(std::chrono::milliseconds deadline) {
  deadline = internal::AtMostAYear(deadline);
  return internal::Guard([&] {
    if (state_->process.here() && state_->server != nullptr) state_->server->Stop(deadline / 10);
    if (auto* monitor = running()) return monitor->Stop(deadline);
    if (auto* nothing = inert()) nothing->publisher().Stop(deadline);
    return absl::OkStatus();
  });
}

std::string Monitor::Describe() const {
  if (auto* monitor = running()) return monitor->description();
  if (auto* nothing = inert()) {
    return internal::StrCat("nothing is measured: ", internal::Message(nothing->why()), "\n");
  }
  return "disabled by PTQWATCH_DISABLE\n";
}

MonitorStatus Monitor::status() const {
  if (auto* monitor = running()) return monitor->publisher().status();
  if (auto* nothing = inert()) return nothing->publisher().status();
  return {};
}

std::shared_ptr<const AnalyzedReport> Monitor::latest() const {
  auto* monitor = running();
  return monitor == nullptr ? nullptr : monitor->publisher().latest();
}

ServerStatus Monitor::served() const { return status().server; }

Control& Monitor::control() {
  auto* monitor = running();
  return monitor == nullptr ? internal::NoControl() : monitor->control();
}

}  // namespace ptqwatch
