#ifndef PTQWATCH_VERDICT_H_
#define PTQWATCH_VERDICT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace ptqwatch {

enum class VerdictState {
  kUnknown = 0,     ///< the newest snapshot has no usable measurement
  kCollecting = 1,  ///< too few stable-phase snapshots for a baseline
  kHealthy = 2,     ///< within the scatter of the baseline
  kDegrading = 3,   ///< the newest snapshot is above it
  kDegraded = 4,    ///< two or more snapshots in a row are
};

/// "unknown", "collecting", "healthy", "degrading", "degraded".
std::string_view ToString(VerdictState state);
/// InvalidArgument, listing the known names, for any other name.
absl::StatusOr<VerdictState> ParseVerdictState(std::string_view name);

/// What the series of reports says about the newest one. A pure function of the reports, so a
/// journal replays to the same verdicts.
struct Verdict {
  VerdictState state = VerdictState::kUnknown;
  /// Step of the first snapshot in the current unbroken stretch above the baseline.
  std::optional<int64_t> onset_step;
  /// By how much the watched quantizer's loss increase exceeds its baseline, in nats per token.
  std::optional<double> severity_nats;
  /// One sentence for people, with the numbers behind it.
  std::string summary;
  friend bool operator==(const Verdict&, const Verdict&) = default;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_VERDICT_H_
