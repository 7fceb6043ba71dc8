#ifndef PTQWATCH_CONTROL_H_
#define PTQWATCH_CONTROL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch {

inline constexpr int kMinSlicePoints = 2;
inline constexpr int kMaxSlicePoints = 101;

/// Takes a snapshot at the next step boundary at which the staging slot is free, even while paused.
/// FailedPrecondition if nothing would be measured: the monitor is off, was stopped, or has
/// switched every probe off.
struct TakeSnapshot {};

/// Skips due snapshots, and counts them as skipped, until Resume. A snapshot that is being measured
/// is finished.
struct Pause {};
struct Resume {};

/// Replaces the run's schedule. InvalidArgument unless `steps` is positive.
struct SetEvery {
  int64_t steps = 0;  ///< snapshots are due at steps divisible by this
};

/// Measures a slice through the loss surface: the plane through the weights of two snapshots,
/// Theta_{K-1} and Theta_K, and the quantized Theta_K. MonitorStatus::slice gives the progress and
/// the name of the file in run_dir.
///
/// Cost: one copy of the weights from the first of the two snapshots on, and points^2 evaluations
/// of the curvature batches after the report of the second. Until these are done, later snapshots
/// wait or are skipped.
///
/// InvalidArgument if the run does not have the quantizer or `points` is out of range.
/// FailedPrecondition without run_dir, with curvature switched off, or while another slice is being
/// made.
struct MakeSlice {
  /// With `bits` and `format`, one of the run's quantizers.
  QuantizationMethod method = QuantizationMethod::kRtn;
  int bits = 0;
  int points = 21;  ///< along each axis, from kMinSlicePoints to kMaxSlicePoints
  /// Theta_K is the first snapshot at or after this step, Theta_{K-1} the newest one measured
  /// before it. Unset: the next two snapshots.
  std::optional<int64_t> at_step = {};
  std::optional<std::string> format = {};  ///< FormatOf(QuantizerSpec); absent: the method's
};

/// Takes a snapshot as TakeSnapshot does, and predicts from it the end of the planned learning-rate
/// decay (Report::predicted_end). MonitorStatus::cooldown gives the progress.
///
/// InvalidArgument if the length of the decay is negative, or is set neither here nor in the
/// options. FailedPrecondition if the subject cannot train its replica, or while another cooldown
/// is running.
struct StartCooldown {
  int64_t decay_steps = 0;  ///< of the planned decay; 0: CooldownOptions::decay_steps
};

/// Ends the running cooldown. FailedPrecondition if there is none.
struct CancelCooldown {};

/// Every request that a run accepts.
using Command =
    std::variant<TakeSnapshot, Pause, Resume, SetEvery, MakeSlice, StartCooldown, CancelCooldown>;

/// Passes commands to a running monitor.
///
/// Commands from outside, by gRPC or through the run directory, are rate-limited: a few snapshots
/// at once and one a minute in the long run; a few slices or cooldowns and one every ten minutes;
/// twenty other commands and one a second. Monitor::control() is not limited.
///
/// The monitor thread carries out a command: at once if it is idle; while it measures a snapshot,
/// after the current layer, loss comparison, probe or slice point. From then on OnStep acts on it.
/// If several commands of one kind are waiting, only the newest is carried out.
class PTQWATCH_EXPORT Control {
 public:
  virtual ~Control() = default;
  /// Returns the number of the slice or cooldown that `command` starts. For other commands, returns
  /// the sequence of the newest report; the report of a requested snapshot has a larger one.
  /// Thread-safe, returns at once.
  ///
  /// Errors are those of the command, FailedPrecondition if the monitor is disabled or was stopped,
  /// and ResourceExhausted if commands arrive too fast.
  virtual absl::StatusOr<int64_t> Do(const Command& command) = 0;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_CONTROL_H_
