#ifndef PTQWATCH_TRAJECTORY_TRAJECTORY_SETTINGS_H_
#define PTQWATCH_TRAJECTORY_TRAJECTORY_SETTINGS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ptqwatch/options.h"
#include "ptqwatch/quantizer.h"
#include "trajectory/token_file.h"

namespace ptqwatch::internal {

inline constexpr char kSettingsFileName[] = "trajectory.json";

/// Everything that the numbers of a trajectory depend on, except the weights, by name.
struct TrajectorySettings {
  std::vector<std::pair<std::string, std::string>> values;

  /// Hex digest: Report::fingerprint.
  std::string Fingerprint() const;
};

/// `architecture` is ModelFacts::architecture, and `tasks` names the content of the file of tasks.
TrajectorySettings MakeSettings(const std::string& architecture, const TokenSequences& probe,
                                const TokenSequences& calibration, const std::string& tasks,
                                absl::Span<const QuantizerSpec> quantizers,
                                absl::Span<const SpecOverride> overrides,
                                const CurvatureOptions& curvature, double noise, uint64_t seed);

/// Keeps the settings in a run directory, or compares them with those that are there.
/// FailedPrecondition names each setting that differs, with both values; otherwise the system's
/// errors.
absl::Status KeepSettings(const std::string& run_dir, const TrajectorySettings& settings);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TRAJECTORY_TRAJECTORY_SETTINGS_H_
