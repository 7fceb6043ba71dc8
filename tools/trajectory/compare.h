#ifndef PTQWATCH_TOOLS_TRAJECTORY_COMPARE_H_
#define PTQWATCH_TOOLS_TRAJECTORY_COMPARE_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "comparison_text.h"
#include "decoder_meter.h"
#include "flags.h"
#include "ptqwatch/execution_context.h"
#include "trajectory/measure_trajectory.h"
#include "trajectory/trajectory_unit.h"

namespace ptqwatch::tools {

/// --compare: two models measured with the same tokens and quantizers.
class Comparison {
 public:
  /// Finds both models. Errors name the option or the model: a mistake in the options, files that
  /// are missing or damaged, vocabularies of different sizes. `notice` gets a line for each folder
  /// that is left out. `flags` must outlive it.
  static absl::StatusOr<Comparison> Prepare(const Flags& flags,
                                            const std::function<void(std::string_view)>& notice);

  /// Measures both, one after the other, and returns the text to print. DataLoss, naming the model,
  /// if its weights or its loss are not finite; otherwise errors of internal::MeasureUnit.
  absl::StatusOr<std::string> Measure(const internal::TrajectoryListener& listener,
                                      const ExecutionContext& context);

 private:
  struct Model {
    internal::TrajectoryUnit unit = {};
    ComparedModel compared = {};
    internal::CheckpointLosses losses = {};
  };

  Comparison(const Flags& flags, std::unique_ptr<DecoderMeter> meter)
      : flags_(flags), meter_(std::move(meter)) {}
  absl::StatusOr<Model> FindModel(const std::string& path,
                                  const std::function<void(std::string_view)>& notice) const;

  const Flags& flags_;
  std::unique_ptr<DecoderMeter> meter_;
  std::vector<Model> models_;  // A and B
};

}  // namespace ptqwatch::tools

#endif  // PTQWATCH_TOOLS_TRAJECTORY_COMPARE_H_
