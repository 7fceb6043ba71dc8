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
#include "monitor/monitor_part.h"
#include "monitor/rank_place.h"
#include "monitor/relay_monitor.h"
#include "monitor/remote_monitor.h"
#include "monitor/running_monitor.h"
#include "monitor/shard_rank.h"
#include "ptqwatch/measure_for_trainer.h"
#include "staging/worker_link.h"

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

// InvalidArgument for options of a process that measures, if a thread does.
absl::Status CheckOwnProcess(const MonitorOptions& options) {
  std::string option;
  if (options.measuring_threads > 1) {
    option = internal::StrCat("measuring_threads = ", options.measuring_threads);
  } else if (!options.snapshot_dtype.empty()) {
    option = internal::StrCat("snapshot_dtype = '", options.snapshot_dtype, "'");
  } else {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      internal::StrCat("MonitorOptions.", option,
                       ": only for a monitor with a process of its own: "
                       "MonitorOptions.process, in Python mode='process'"));
}

// Makes the inside of a monitor. `given` are the options as before EnterRank.
absl::StatusOr<std::unique_ptr<internal::MonitorPart>> Start(
    std::unique_ptr<Subject> subject, const MonitorOptions& options, const MonitorOptions& given,
    const std::optional<internal::ShardRank>& shard,
    std::vector<std::unique_ptr<Exporter>>& exporters, internal::WorkerLink* link) {
  using Part = std::unique_ptr<internal::MonitorPart>;
  if (subject == nullptr) return absl::InvalidArgumentError("the subject is null");
  for (const auto& exporter : exporters) {
    if (exporter == nullptr) return absl::InvalidArgumentError("an exporter is null");
  }
  PTQWATCH_RETURN_IF_ERROR(Validate(options));
  return internal::Guard([&]() -> absl::StatusOr<Part> {
    if (options.process) {
      if (!exporters.empty()) {
        return absl::InvalidArgumentError(
            "exporters are given with MonitorOptions.process: give them to MeasureForTrainer, in "
            "the process that measures");
      }
      return internal::RemoteMonitor::Start(std::move(subject), options, given, shard);
    }
    if (link == nullptr) PTQWATCH_RETURN_IF_ERROR(CheckOwnProcess(options));
    MonitorOptions measured = options;
    // First, because its share of the memory that is free is taken before other memory is.
    auto running = std::make_unique<internal::RunningMonitor>(options, std::move(subject), link);
    if (link != nullptr) {
      PTQWATCH_RETURN_IF_ERROR(link->Gather());
      const std::shared_ptr<internal::Shards>& shards = link->shards();
      if (shards != nullptr && shards->relay() != nullptr) {
        return Part(std::make_unique<internal::RelayMonitor>(*shards->relay(), link->page()));
      }
      // The work is not shared with hosts that only have parts.
      if (shards != nullptr && shards->several_hosts()) measured.ranks = 1;
    }
    PTQWATCH_RETURN_IF_ERROR(running->Start(measured, exporters));
    return Part(std::move(running));
  });
}

}  // namespace

struct Monitor::State {
  const internal::ProcessMark process = {};
  std::unique_ptr<internal::ServerKeeper> server = nullptr;  // stopped first, destroyed last
  std::unique_ptr<internal::MonitorPart> part = nullptr;     // null: disabled
  std::string temporary_dir = {};                            // for a run without a run_dir
  absl::Status no_directory = absl::OkStatus();              // why there is no directory to serve
  std::optional<internal::AtProcessEnd> server_at_end = {};  // last: may be stopping it

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
  absl::StatusOr<internal::ServedDirectory> directory = internal::ServedDirectory{
      .run_dir = run_dir, .remove = !temporary_dir.empty(), .of_rank = of_rank};
  if (!no_directory.ok()) directory = no_directory;
  server_at_end.emplace([this] {
    if (server != nullptr) server->Stop(kServerTimeAtEnd);
  });
  return internal::ServerKeeper::Serve(
      options, directory,
      {[this](const ServerStatus& status, pid_t serving) { part->SetServer(status, serving); },
       [this](const absl::Status& failure, const std::string& message) {
         part->AnnounceServer(!failure.ok(), message);
       }},
      kWaitForServer, server);
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
    // Whatever the options: it would train a second time, beside its trainer.
    if (link == nullptr && IsMeasuringProcess()) {
      internal::EndMeasuringProcess(
          "the program does not call MeasureForTrainer before Monitor::Create");
    }
    auto state = std::make_unique<State>();
    if (Disabled()) return std::unique_ptr<Monitor>(new Monitor(std::move(state)));
    options.run_dir = AbsolutePath(options.run_dir);
    std::optional<internal::ShardRank> shard;
    const auto enter_shard = [&]() -> absl::Status {
      if (!options.process || subject == nullptr) return absl::OkStatus();
      PTQWATCH_ASSIGN_OR_RETURN(const bool sharded, internal::IsSharded(*subject));
      if (!sharded) return absl::OkStatus();
      PTQWATCH_ASSIGN_OR_RETURN(shard, internal::EnterShard(options));
      return absl::OkStatus();
    };
    absl::Status placed = enter_shard();
    MonitorOptions given = options;
    placed.Update(internal::EnterRank(options));
    // Without its place, a rank has no directory of its own.
    if (!placed.ok()) options.run_dir.clear();
    if (const std::string why = shard ? "" : internal::WhyAnotherServes(options.rank.value_or(0));
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
        given.run_dir = options.run_dir;
      }
    }
    auto part = placed.ok() ? Start(std::move(subject), options, given, shard, exporters, link)
                            : absl::StatusOr<std::unique_ptr<internal::MonitorPart>>(placed);
    if (link != nullptr && !part.ok()) link->TellFailure(internal::Message(part.status()));
    if (shard && !part.ok()) {
      internal::RefuseShard(shard->place, internal::Message(part.status()));
      if (!shard->measures) options.run_dir.clear();  // the run is another rank's
    }
    if (part.ok()) {
      state->part = *std::move(part);
    } else if (options.on_failure == OnFailure::kError) {
      return part.status();
    } else {
      std::erase(exporters, nullptr);
      if (options.clock == nullptr) options.clock = Clock::Real();
      state->part =
          std::make_unique<internal::InertMonitor>(options, part.status(), std::move(exporters));
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

internal::MonitorPart* Monitor::part() const noexcept {
  return state_->process.here() ? state_->part.get() : nullptr;
}

absl::Status Monitor::creation_status() const {
  return part() == nullptr ? absl::OkStatus() : part()->creation_status();
}

void Monitor::OnStep(const StepInfo& info) noexcept {
  if (auto* monitor = part()) monitor->OnStep(info);
}

void Monitor::BeforeUpdate() noexcept {
  if (auto* monitor = part()) monitor->BeforeUpdate();
}

Monitor::IdleScope Monitor::Idle() noexcept {
  if (auto* monitor = part()) monitor->BeginIdle();
  return IdleScope(this);
}

Monitor::IdleScope::IdleScope(IdleScope&& other) noexcept
    : monitor_(std::exchange(other.monitor_, nullptr)) {}

Monitor::IdleScope::~IdleScope() {
  if (monitor_ == nullptr) return;
  if (auto* monitor = monitor_->part()) monitor->EndIdle();
}

absl::Status Monitor::Finish(std::chrono::milliseconds timeout, const CancelToken& cancel) {
  if (auto* monitor = part()) {
    return internal::Guard([&] { return monitor->Finish(internal::AtMostAYear(timeout), cancel); });
  }
  return absl::OkStatus();
}

absl::Status Monitor::Stop(std::chrono::milliseconds deadline) {
  deadline = internal::AtMostAYear(deadline);
  return internal::Guard([&] {
    if (state_->process.here() && state_->server != nullptr) state_->server->Stop(deadline / 10);
    return part() == nullptr ? absl::OkStatus() : part()->Stop(deadline);
  });
}

std::string Monitor::Describe() const {
  return part() == nullptr ? "disabled by PTQWATCH_DISABLE\n" : part()->Describe();
}

MonitorStatus Monitor::status() const {
  return part() == nullptr ? MonitorStatus() : part()->status();
}

std::shared_ptr<const AnalyzedReport> Monitor::latest() const {
  return part() == nullptr ? nullptr : part()->latest();
}

ServerStatus Monitor::served() const { return status().server; }

Control& Monitor::control() {
  return part() == nullptr ? internal::NoControl() : part()->control();
}

}  // namespace ptqwatch
