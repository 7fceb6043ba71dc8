#ifndef PTQWATCH_CONTROL_H_
#define PTQWATCH_CONTROL_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ptqwatch {

inline constexpr int kMinSlicePoints = 2;
inline constexpr int kMaxSlicePoints = 101;

/// Asks for a slice through the loss surface: the plane through the weights of two snapshots,
/// Theta_{K-1} and Theta_K, and the quantized Theta_K.
struct SliceRequest {
  std::string method;  ///< one of the run's quantizers, as reports name it: "gptq"
  int bits = 0;
  int points = 21;  ///< along each axis, from kMinSlicePoints to kMaxSlicePoints
  /// Theta_K is the first snapshot at or after this step, Theta_{K-1} the newest one measured
  /// before it. Unset: they are the next two that are taken.
  std::optional<int64_t> at_step = {};
};

/// The only way back into a running monitor; all calls are thread-safe, return at once and take
/// effect at the next step.
class Control {
 public:
  virtual ~Control() = default;
  /// Takes a snapshot at the next step boundary.
  virtual void RequestSnapshot() = 0;
  virtual void Pause() = 0;
  virtual void Resume() = 0;
  /// Steps between snapshots. InvalidArgument unless positive.
  virtual absl::Status SetEvery(int64_t steps) = 0;
  /// Has a slice of the loss surface made, through two snapshots to come and the quantized second
  /// one; returns its number. MonitorStatus::slice tells how far it is and which file in run_dir it
  /// is in. From the first of the two snapshots on it costs the memory of one copy of the weights,
  /// after the report of the second points^2 evaluations of the curvature batches, during which
  /// later snapshots wait or are skipped. InvalidArgument for a quantizer that the run does not
  /// have and for `points` out of range; FailedPrecondition without run_dir, with curvature
  /// switched off, and while another one is under way.
  virtual absl::StatusOr<int64_t> RequestSlice(const SliceRequest& request) = 0;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_CONTROL_H_
