#ifndef PTQWATCH_TOOLS_TRAJECTORY_DECODER_METER_H_
#define PTQWATCH_TOOLS_TRAJECTORY_DECODER_METER_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "streamed/measure_checkpoint.h"
#include "trajectory/checkpoint_meter.h"

namespace ptqwatch::tools {

/// Measures checkpoints in the format of Hugging Face, block by block.
class DecoderMeter final : public internal::CheckpointMeter {
 public:
  /// `config` as in CheckpointFiles::Open.
  DecoderMeter(internal::TrajectoryData data, internal::CheckpointMeasurement options,
               std::string config)
      : data_(std::move(data)), options_(std::move(options)), config_(std::move(config)) {}

  /// Also measures the accuracy of `tasks` (internal::ReadTaskFile) from here on.
  void SetTasks(std::vector<internal::TaskItem> tasks) { data_.tasks = std::move(tasks); }

  absl::StatusOr<internal::ModelFacts> Facts(const std::string& folder) override;
  absl::StatusOr<int64_t> Bytes(absl::Span<const std::string> folders, bool losses_alone) override;
  absl::StatusOr<Report> Measure(
      absl::Span<const std::string> folders, bool losses_alone,
      const std::function<void(const internal::MeterProgress&)>& progress,
      const ExecutionContext& context) override;

  /// The losses behind the newest report; without one, empty.
  const internal::CheckpointLosses& losses() const { return losses_; }

 private:
  internal::CheckpointMeasurement OptionsFor(bool losses_alone) const;

  internal::TrajectoryData data_;
  const internal::CheckpointMeasurement options_;
  const std::string config_;
  internal::CheckpointLosses losses_;
};

}  // namespace ptqwatch::tools

#endif  // PTQWATCH_TOOLS_TRAJECTORY_DECODER_METER_H_
