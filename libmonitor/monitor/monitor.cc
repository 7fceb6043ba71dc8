#include "ptqwatch/monitor.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/float_environment.h"
#include "base/guard.h"
#include "base/process_end.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "monitor/inert_monitor.h"
#include "monitor/monitor_parts.h"
#include "monitor/running_monitor.h"

namespace ptqwatch {
namespace {

bool Disabled() {
  const char* value = std::getenv("PTQWATCH_DISABLE");
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

// The trainer may change its working directory.
std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return path.empty() || error ? path : absolute.string();
}

}  // namespace

struct Monitor::State {
  const internal::ProcessMark process = {};
  std::unique_ptr<internal::RunningMonitor> running = nullptr;
  std::unique_ptr<internal::InertMonitor> inert = nullptr;
};

absl::StatusOr<std::unique_ptr<internal::RunningMonitor>> Monitor::Start(
    std::unique_ptr<Subject> subject, MonitorOptions options,
    std::vector<std::unique_ptr<Exporter>>& exporters) {
  if (subject == nullptr) return absl::InvalidArgumentError("the subject is null");
  for (const auto& exporter : exporters) {
    if (exporter == nullptr) return absl::InvalidArgumentError("an exporter is null");
  }
  PTQWATCH_RETURN_IF_ERROR(Validate(options));
  options.max_bytes = internal::MaxBytes(options);
  return internal::Guard([&]() -> absl::StatusOr<std::unique_ptr<internal::RunningMonitor>> {
    auto running = std::make_unique<internal::RunningMonitor>(options, std::move(subject));
    PTQWATCH_RETURN_IF_ERROR(running->Start(options, exporters));
    return running;
  });
}

absl::StatusOr<std::unique_ptr<Monitor>> Monitor::Create(
    std::unique_ptr<Subject> subject, MonitorOptions options,
    std::vector<std::unique_ptr<Exporter>> exporters) {
  const internal::DefaultFloatEnvironment environment;
  return internal::Guard([&]() -> absl::StatusOr<std::unique_ptr<Monitor>> {
    auto state = std::make_unique<State>();
    if (Disabled()) return std::unique_ptr<Monitor>(new Monitor(std::move(state)));
    options.run_dir = AbsolutePath(options.run_dir);
    auto running = Start(std::move(subject), options, exporters);
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
    return std::unique_ptr<Monitor>(new Monitor(std::move(state)));
  });
}

Monitor::Monitor(std::unique_ptr<State> state) : state_(std::move(state)) {}

Monitor::~Monitor() {
  if (state_->process.here()) {
    Stop(std::chrono::seconds(2)).IgnoreError();
  } else {
    (void)state_.release();  // its threads are the parent's, and so are its sockets
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
    return internal::Guard([&] { return monitor->Finish(timeout, cancel); });
  }
  return creation_status();
}

absl::Status Monitor::Stop(std::chrono::milliseconds deadline) {
  return internal::Guard([&] {
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

Control& Monitor::control() {
  auto* monitor = running();
  return monitor == nullptr ? internal::NoControl() : monitor->control();
}

}  // namespace ptqwatch
