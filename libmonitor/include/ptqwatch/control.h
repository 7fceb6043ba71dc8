#ifndef PTQWATCH_CONTROL_H_
#define PTQWATCH_CONTROL_H_

#include <cstdint>
#include <optional>
#include <variant>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch {

inline constexpr int kMinSlicePoints = 2;
inline constexpr int kMaxSlicePoints = 101;

/// Takes a snapshot at the next step boundary at which the staging slot is free, even while paused.
/// FailedPrecondition while nothing would be measured: the monitor is off, was stopped, or has
/// switched every probe off.
struct TakeSnapshot {};

/// Skips due snapshots, and counts them as such, until Resume. The snapshot in work is finished.
struct Pause {};
struct Resume {};

/// InvalidArgument unless `steps` is positive.
struct SetEvery {
  int64_t steps = 0;  ///< between snapshots
};

/// Measures a slice through the loss surface: the plane through the weights of two snapshots,
/// Theta_{K-1} and Theta_K, and the quantized Theta_K. MonitorStatus::slice follows it and names
/// its file in run_dir.
///
/// Cost: one copy of the weights from the first of the two snapshots on, and points^2 evaluations
/// of the curvature batches after the report of the second, during which later snapshots wait or
/// are skipped.
///
/// InvalidArgument for a quantizer that the run does not have and for `points` out of range.
/// FailedPrecondition without run_dir, with curvature switched off, and while another slice is
/// under way.
struct MakeSlice {
  QuantizationMethod method = QuantizationMethod::kRtn;  ///< with `bits`, one of the run's
  int bits = 0;
  int points = 21;  ///< along each axis, from kMinSlicePoints to kMaxSlicePoints
  /// Theta_K is the first snapshot at or after this step, Theta_{K-1} the newest one measured
  /// before it. Unset: they are the next two that are taken.
  std::optional<int64_t> at_step = {};
};

/// Takes a snapshot as TakeSnapshot does, and predicts from it what the planned decay of the
/// learning rate would end with (Report::predicted_end). MonitorStatus::cooldown follows it.
///
/// InvalidArgument if the length of the decay is negative, or known neither here nor in the
/// options. FailedPrecondition if the subject cannot train its replica, and while another cooldown
/// is under way.
struct StartCooldown {
  int64_t decay_steps = 0;  ///< of the planned decay; 0: CooldownOptions::decay_steps
};

/// Ends the cooldown that is under way. FailedPrecondition if there is none.
struct CancelCooldown {};

/// Everything that may be asked of a run.
using Command =
    std::variant<TakeSnapshot, Pause, Resume, SetEvery, MakeSlice, StartCooldown, CancelCooldown>;

/// Takes commands to a running monitor.
///
/// Commands from outside, by gRPC or through the run directory, are limited: a few snapshots at
/// once and one a minute in the long run, a few slices or cooldowns and one in ten minutes, twenty
/// other commands and one a second. Monitor::control() is not limited.
///
/// The monitor thread carries a command out: at once if it is idle; while it measures a snapshot,
/// after the current layer, loss comparison, probe or slice point. From then on OnStep acts on it.
/// Only the newest of several waiting commands of one kind is carried out.
class PTQWATCH_EXPORT Control {
 public:
  virtual ~Control() = default;
  /// Returns the number of the slice or cooldown that `command` starts; for every other command,
  /// the sequence of the newest report: that of a requested snapshot is larger. Thread-safe,
  /// returns at once.
  ///
  /// Errors are those of the command. Beside them FailedPrecondition if the monitor is disabled or
  /// was stopped, and ResourceExhausted for one command too many.
  virtual absl::StatusOr<int64_t> Do(const Command& command) = 0;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_CONTROL_H_
