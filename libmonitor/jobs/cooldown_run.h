#ifndef PTQWATCH_JOBS_COOLDOWN_RUN_H_
#define PTQWATCH_JOBS_COOLDOWN_RUN_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "analysis/decay_end.h"
#include "base/reservation.h"
#include "probes/probe.h"
#include "probes/quantization_measurement.h"
#include "ptqwatch/options.h"
#include "session/model_session.h"

namespace ptqwatch::internal {

/// A shadow cooldown on a session's replica: trains the replica from the weights of one snapshot
/// through the planned decays, one after the other, and measures the end of each. Works in slices;
/// between slices the replica holds the session's snapshot. Not thread-safe.
class CooldownRun {
 public:
  /// The parts that a run works with. All must outlive it.
  struct Parts {
    ModelSession& session;
    const QuantizationMeasurement& measurement;
    Probe* curvature = nullptr;  ///< measures the trace; null: no trace
    const std::vector<int>& trained;
    const CooldownOptions& options;
  };
  /// Begins at the loaded snapshot. ResourceExhausted if its memory does not fit: five copies of
  /// the parameters and the activations of a training step.
  static absl::StatusOr<std::unique_ptr<CooldownRun>> Begin(const Parts& parts,
                                                            const SnapshotPlace& place,
                                                            int64_t decay_steps,
                                                            const ExecutionContext& context);

  /// Works until all is done, or until `stop` returns true between two optimizer steps, then
  /// restores the loaded snapshot. True if all is done. Errors: those of the closure; Cancelled;
  /// DeadlineExceeded after CooldownOptions::max_time; ResourceExhausted. Result has the
  /// measurements made before an error.
  absl::StatusOr<bool> Advance(absl::FunctionRef<bool()> stop, const ExecutionContext& context);

  int64_t steps_done() const { return result_.simulated_steps; }
  int64_t steps_all() const { return steps_all_; }
  /// The step of the snapshot that the cooldown started from.
  int64_t step() const { return result_.step; }

  /// The results so far; `status` is how the cooldown ended.
  PredictedEnd Result(const absl::Status& status) const;

 private:
  using Weights = std::vector<Replica::Override>;
  CooldownRun(const Parts& parts, const SnapshotPlace& place, const ExecutionContext& context);
  absl::Status TakeMemory();
  // Trains until the decay has ended (true) or `stop` returns true (false).
  absl::StatusOr<bool> Train(absl::FunctionRef<bool()> stop, const ExecutionContext& context);
  absl::Status TrainOneStep(const ExecutionContext& context);
  absl::Status MeasureEnd(const ExecutionContext& context);
  Weights Copy(const Weights& weights) const;
  const DecayPlan& decay() const { return decays_[at_]; }

  Parts parts_;
  SnapshotPlace place_;
  std::chrono::nanoseconds deadline_;
  Reservation held_;
  int64_t step_bytes_ = 0;  // reserved for a training step
  std::vector<DecayPlan> decays_;
  int64_t steps_all_ = 0;
  size_t at_ = 0;       // in decays_
  int64_t index_ = 0;   // of the next step, settling included
  double seconds_ = 0;  // of work in this decay
  Weights start_;
  Weights now_;
  PredictedEnd result_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_JOBS_COOLDOWN_RUN_H_
