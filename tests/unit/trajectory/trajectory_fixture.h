#ifndef PTQWATCH_TESTS_UNIT_TRAJECTORY_TRAJECTORY_FIXTURE_H_
#define PTQWATCH_TESTS_UNIT_TRAJECTORY_TRAJECTORY_FIXTURE_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "base/strings.h"
#include "support/temp_dir.h"
#include "trajectory/checkpoint_meter.h"
#include "trajectory/trajectory_settings.h"

namespace ptqwatch::testing {

/// The content of a checkpoint's weights for FakeMeter.
inline std::string WeightsOf(double loss, double delta) {
  return internal::StrCat(loss, " ", delta);
}

/// Makes a folder that passes for a complete checkpoint.
inline std::string MakeCheckpoint(const std::string& folder, double loss = 2, double delta = 0.1) {
  std::filesystem::create_directories(folder);
  WriteFile(folder + "/config.json", "{\"model_type\": \"fake\"}");
  WriteFile(folder + "/model.safetensors", WeightsOf(loss, delta));
  return folder;
}

inline void WriteTrainerState(const std::string& folder, int64_t step, double rate) {
  WriteFile(folder + "/trainer_state.json",
            internal::StrCat("{\"global_step\": ", step, ", \"log_history\": [{\"step\": ", step,
                             ", \"learning_rate\": ", rate, "}]}"));
}

/// Measures checkpoints whose weights are two numbers, loss and the delta of gptq3; the mean of
/// several has their means.
class FakeMeter : public internal::CheckpointMeter {
 public:
  absl::StatusOr<internal::ModelFacts> Facts(const std::string& folder) override {
    if (opening) {
      if (absl::Status status = opening(folder); !status.ok()) return status;
    }
    return internal::ModelFacts{.architecture = ReadFile(folder + "/config.json"),
                                .vocabulary = 100,
                                .context = 64,
                                .parameters = 10,
                                .covered_parameters = 8};
  }
  absl::StatusOr<int64_t> Bytes(absl::Span<const std::string>, bool) override { return 1; }
  absl::StatusOr<Report> Measure(
      absl::Span<const std::string> folders, bool losses_alone,
      const std::function<void(const internal::MeterProgress&)>& progress,
      const ExecutionContext& context) override {
    measured.push_back(folders.front());
    if (during) {
      if (absl::Status status = during(folders.front()); !status.ok()) return status;
    }
    if (progress) progress({.part = "block", .done = 1, .of = 2});
    if (context.cancel.cancelled()) return absl::CancelledError("cancelled");
    double loss = 0, delta = 0;
    for (const std::string& folder : folders) {
      const std::string text = ReadFile(folder + "/model.safetensors");
      const size_t space = text.find(' ');
      double own_loss = 0, own_delta = 0;
      if (space == std::string::npos || !absl::SimpleAtod(text.substr(0, space), &own_loss) ||
          !absl::SimpleAtod(text.substr(space + 1), &own_delta)) {
        return absl::NotFoundError(folder + " has no weights");
      }
      loss += own_loss / static_cast<double>(folders.size());
      delta += own_delta / static_cast<double>(folders.size());
    }
    return ReportOf(loss, delta, !losses_alone);
  }

  /// Called when the facts of a folder are read.
  std::function<absl::Status(const std::string& folder)> opening;
  /// Called during each measurement, with the first folder.
  std::function<absl::Status(const std::string& folder)> during;
  std::vector<std::string> measured;  ///< the first folder of each call

 private:
  static Report ReportOf(double loss, double delta, bool curvature) {
    Report report;
    report.probe_status = ProbeStatus::kOk;
    report.probe_loss_nats = loss;
    report.probe_tokens = 64;
    QuantizationReport entry;
    entry.method = QuantizationMethod::kGptq;
    entry.bits = 3;
    entry.group_size = 128;
    entry.status = ProbeStatus::kOk;
    entry.loss_nats = loss + delta;
    entry.delta_nats = delta;
    entry.delta_stderr_nats = 0.04 * delta;
    entry.error_ratio = delta / loss;
    entry.layers.emplace_back().name = "blocks.0.weight";
    report.quantization.push_back(std::move(entry));
    if (curvature) report.curvature.emplace().status = ProbeStatus::kOk;
    report.cost["quantize"] = 0.5;
    return report;
  }
};

/// As MakeSettings makes them.
inline internal::TrajectorySettings SettingsOf(const std::string& quantizers = "gptq3") {
  return {.values = {{"model", "fake"}, {"quantizers", quantizers}}};
}

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_UNIT_TRAJECTORY_TRAJECTORY_FIXTURE_H_
