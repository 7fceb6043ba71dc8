#include "monitor_setup.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "console.h"
#include "console_exporter.h"
#include "ptqwatch/grpc_exporter.h"
#include "ptqwatch/log.h"
#include "ptqwatch/prometheus_exporter.h"

namespace ptqwatch::examples {
namespace {

constexpr std::chrono::milliseconds kFinishTimeout = std::chrono::minutes(5);
constexpr std::chrono::milliseconds kFinishSlice(250);
constexpr std::chrono::milliseconds kStopTimeout = std::chrono::seconds(5);

absl::Status WithPrefix(const std::string& prefix, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(prefix, ": ", status.message()));
}

absl::Status CheckRunDirectory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error && access(path.c_str(), W_OK | X_OK) != 0) {
    error = std::error_code(errno, std::generic_category());
  }
  if (!error) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("--run-dir ", path, ": ", error.message()));
}

// A method with a single bit-width has it whatever `bits` says, and no groups.
QuantizerSpec MakeSpec(QuantizationMethod method, int bits, int group_size) {
  switch (method) {
    case QuantizationMethod::kLlmInt8:
      return {.method = method, .bits = 8};
    case QuantizationMethod::kNf4:
      return {.method = method, .bits = 4};
    default:
      return {.method = method, .bits = bits, .group_size = group_size};
  }
}

}  // namespace

MonitorOptions MakeMonitorOptions(const TrainerFlags& flags, int64_t steps) {
  MonitorOptions options;
  options.schedule.every = flags.EveryOr(steps);
  options.quantizers.clear();
  for (const std::string& name : flags.methods) {
    const QuantizationMethod method = ParseQuantizationMethod(name).value();
    for (const int bits : flags.bits) {
      const QuantizerSpec spec = MakeSpec(method, bits, flags.group_size);
      const auto& known = options.quantizers;
      if (std::find(known.begin(), known.end(), spec) == known.end()) {
        options.quantizers.push_back(spec);
      }
    }
  }
  options.calibration_mode = ParseCalibrationMode(flags.calibration).value();
  options.seed = flags.seed;
  options.training_threads = flags.threads;
  options.run_dir = flags.run_dir;
  return options;
}

absl::StatusOr<std::unique_ptr<WatchedRun>> WatchedRun::Start(std::unique_ptr<Subject> subject,
                                                              const TrainerFlags& flags,
                                                              int64_t steps) {
  std::unique_ptr<WatchedRun> run(new WatchedRun);
  auto slice = FinalSlice::Plan(flags, steps);
  if (!slice.ok()) return WithPrefix("--slice", slice.status());
  run->slice_ = *std::move(slice);
  std::vector<std::unique_ptr<Exporter>> exporters;
  auto prometheus = PrometheusExporter::Create({.address = flags.http});
  if (!prometheus.ok()) return WithPrefix("--http", prometheus.status());
  run->address_ = (*prometheus)->address();
  exporters.push_back(std::move(*prometheus));
  std::string grpc_address;
  if (flags.grpc != "off") {
    auto grpc = GrpcExporter::Create({.address = flags.grpc});
    if (!grpc.ok()) return WithPrefix("--grpc", grpc.status());
    grpc_address = (*grpc)->address();
    exporters.push_back(std::move(*grpc));
  }
  if (!flags.run_dir.empty()) {
    if (auto status = CheckRunDirectory(flags.run_dir); !status.ok()) return status;
  }
  exporters.push_back(std::make_unique<ConsoleExporter>(&run->summary_));

  SetLogSink(Severity::kWarning, [](Severity severity, std::string_view message) {
    Console::Get().Warning(std::string(ToString(severity)).append(": ").append(message));
  });
  auto monitor =
      Monitor::Create(std::move(subject), MakeMonitorOptions(flags, steps), std::move(exporters));
  if (!monitor.ok()) return monitor.status();
  run->monitor_ = std::move(*monitor);
  if (const absl::Status asked = run->slice_.Request(*run->monitor_); !asked.ok()) {
    Console::Get().Warning(absl::StrCat("--slice: ", asked.message()));
  }

  Console::Get().Line(absl::StrCat("metrics http://", run->address_, "/metrics"));
  if (!grpc_address.empty()) Console::Get().Line(absl::StrCat("grpc ", grpc_address));
  // The first line says how much is covered; the rest lists the layers.
  const std::string plan = run->monitor_->Describe();
  Console::Get().Line(plan.substr(0, plan.find_first_of(":\n")));
  return run;
}

void WatchedRun::Finish(const StopSignal& stop, bool announce) {
  // In slices, because a signal must be able to end the wait.
  const auto start = std::chrono::steady_clock::now();
  absl::Status status = monitor_->Finish(kFinishSlice);
  while (absl::IsDeadlineExceeded(status) && !stop.requested() &&
         std::chrono::steady_clock::now() - start < kFinishTimeout) {
    if (announce) Console::Get().Line("waiting for the monitor to measure the last snapshots");
    announce = false;
    status = monitor_->Finish(kFinishSlice);
  }
  if (!status.ok() && !stop.requested()) {
    Console::Get().Warning(absl::StrCat("the last step was not measured: ", status.message()));
  }
}

void WatchedRun::PrintSlice() const {
  const absl::StatusOr<std::string> path = slice_.Path(*monitor_);
  if (!path.ok()) {
    Console::Get().Warning(absl::StrCat("--slice: ", path.status().message()));
  } else if (!path->empty()) {
    Console::Get().Line(absl::StrCat("slice ", *path));
  }
}

void WatchedRun::PrintSummary() const {
  std::string table = summary_.Table();
  absl::StripTrailingAsciiWhitespace(&table);
  Console::Get().Line(table);
}

void WatchedRun::Linger(double seconds, const StopSignal& stop) const {
  if (seconds <= 0 || stop.requested()) return;
  Console::Get().Line(
      absl::StrFormat("serving http://%s/metrics for %g s more", address_, seconds));
  stop.WaitFor(
      std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds)));
}

void WatchedRun::Stop() {
  if (const absl::Status status = monitor_->Stop(kStopTimeout); !status.ok()) {
    Console::Get().Warning(absl::StrCat("stopping the monitor: ", status.message()));
  }
}

int EndRun(const RunResult& result, double linger_seconds, const StopSignal& stop,
           WatchedRun* run) {
  Console& console = Console::Get();
  if (stop.requested()) {
    console.Line(absl::StrCat("interrupted after step ", result.steps));
    if (run != nullptr) run->Stop();
  } else if (run != nullptr) {
    run->Finish(stop);
  }
  console.Line(absl::StrFormat("training seconds %.3f", result.seconds));
  console.Line("weights sha256 " + result.weights_sha256());
  if (!stop.requested()) {
    console.Line(absl::StrFormat("validation loss %.4f", result.validation_loss()));
  }
  if (run != nullptr) {
    if (!stop.requested()) run->PrintSlice();
    run->PrintSummary();
    run->Linger(linger_seconds, stop);
    run->Stop();
  }
  return stop.exit_code();
}

}  // namespace ptqwatch::examples
