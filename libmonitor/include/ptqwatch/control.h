#ifndef PTQWATCH_CONTROL_H_
#define PTQWATCH_CONTROL_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch {

inline constexpr int kMinSlicePoints = 2;
inline constexpr int kMaxSlicePoints = 101;

/// Asks for a slice through the loss surface: the plane through the weights of two snapshots,
/// Theta_{K-1} and Theta_K, and the quantized Theta_K.
struct SliceRequest {
  QuantizationMethod method = QuantizationMethod::kRtn;  ///< with `bits`, one of the run's
  int bits = 0;
  int points = 21;  ///< along each axis, from kMinSlicePoints to kMaxSlicePoints
  /// Theta_K is the first snapshot at or after this step, Theta_{K-1} the newest one measured
  /// before it. Unset: they are the next two that are taken.
  std::optional<int64_t> at_step = {};
};

/// Asks for a shadow cooldown (CooldownOptions) from the next snapshot.
struct CooldownRequest {
  int64_t decay_steps = 0;  ///< of the planned decay; 0: CooldownOptions::decay_steps
};

/// Commands to a running monitor. All calls are thread-safe and return at once.
///
/// What reaches the monitor from outside, by gRPC or through the run directory, is limited: a few
/// snapshots at once and one a minute in the long run, a few slices or cooldowns and one in ten
/// minutes, twenty other commands and one a second. Monitor::control() is not.
///
/// A command is carried out by the monitor thread: at once where that is idle; while it measures a
/// snapshot, after the layer, loss comparison, probe or slice point that it works on. From then on
/// OnStep acts on it. Of several waiting commands of one kind only the newest is carried out.
class PTQWATCH_EXPORT Control {
 public:
  virtual ~Control() = default;
  /// Takes a snapshot at the next step boundary at which the staging slot is free, even while
  /// paused. FailedPrecondition while nothing would be measured: the monitor is off, was stopped,
  /// or has switched every probe off. ResourceExhausted for one request too many.
  virtual absl::Status RequestSnapshot() = 0;
  /// Due snapshots are skipped, and counted as such, until Resume. What is being measured goes on.
  virtual absl::Status Pause() = 0;
  virtual absl::Status Resume() = 0;
  /// Steps between snapshots. InvalidArgument unless positive.
  virtual absl::Status SetEvery(int64_t steps) = 0;
  /// Has a slice of the loss surface made, through two snapshots to come and the quantized second
  /// one. Returns the slice's number; MonitorStatus::slice follows it and names its file in
  /// run_dir.
  ///
  /// Cost: one copy of the weights from the first of the two snapshots on, and points^2 evaluations
  /// of the curvature batches after the report of the second, during which later snapshots wait or
  /// are skipped.
  ///
  /// InvalidArgument for a quantizer that the run does not have and for `points` out of range.
  /// FailedPrecondition without run_dir, with curvature switched off, while another slice is under
  /// way, and on a monitor that is disabled or stopped. ResourceExhausted as above.
  virtual absl::StatusOr<int64_t> RequestSlice(const SliceRequest& request) = 0;
  /// Takes a snapshot as RequestSnapshot does, and predicts from it what the planned decay of the
  /// learning rate would end with (Report::predicted_end). Returns the cooldown's number;
  /// MonitorStatus::cooldown follows it.
  ///
  /// InvalidArgument where no length of the decay is known, or a negative one is asked for.
  /// FailedPrecondition where the subject cannot train its replica, while another cooldown is under
  /// way, and on a monitor that is disabled or stopped. ResourceExhausted as above.
  virtual absl::StatusOr<int64_t> RequestCooldown(const CooldownRequest& request) = 0;
  /// Ends the cooldown that is under way, if there is one.
  virtual absl::Status CancelCooldown() = 0;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_CONTROL_H_
