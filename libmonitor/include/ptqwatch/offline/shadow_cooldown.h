#ifndef PTQWATCH_OFFLINE_SHADOW_COOLDOWN_H_
#define PTQWATCH_OFFLINE_SHADOW_COOLDOWN_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/options.h"
#include "ptqwatch/quantizer.h"
#include "ptqwatch/report.h"

namespace ptqwatch {

class Subject;

struct ShadowCooldownOptions {
  /// The planned decay and its simulation. `decay_steps` must be positive; `every_snapshots` is
  /// ignored.
  CooldownOptions cooldown = {};
  /// Rate at the start of the decay; positive.
  double learning_rate = 0;
  /// Step of the weights: appears in the result, and selects the training batches.
  int64_t step = 0;
  /// Quantizers to try at the end of every simulated decay; at least one.
  std::vector<QuantizerSpec> quantizers = DefaultQuantizers();
  LayerSelection layers = {};
  CalibrationMode calibration_mode = CalibrationMode::kOneShot;
  /// Whether to measure the trace at the end of every simulated decay, and how.
  CurvatureOptions curvature = {.enabled = false};
  uint64_t seed = 0;
  /// Called after each optimizer step, on the calling thread. Must not throw.
  std::function<void(int64_t steps_done, int64_t steps_all)> progress = nullptr;
};

/// InvalidArgument naming the field and its value.
PTQWATCH_EXPORT absl::Status Validate(const ShadowCooldownOptions& options);

/// Predicts the end of a planned learning-rate decay without a monitor: trains a copy of the model
/// (the subject's replica, by its train_step) through shorter decays, measures the cost of
/// quantization at the end of each, and extrapolates. Gives the same result as a monitor with the
/// same options in Report::predicted_end for the same weights.
/// @code
///   auto subject = ptqwatch::MakeModuleSubject(
///       model, {.replica = ..., .losses = ..., .probe = batches, .train_step = ...});
///   const auto end = ptqwatch::RunShadowCooldown(
///       *subject, {.cooldown = {.decay_steps = 20000}, .learning_rate = 3e-4});
///   if (!end.ok()) return end.status();
///   for (const ptqwatch::PredictedError& error : end->quantization) Print(error);
/// @endcode
/// Reads the live model once and does not change it. Opens `subject`, which serves one call. Not
/// thread-safe for the same subject. Never throws.
///
/// Cost: the sum of CooldownOptions::lengths times `decay_steps` calls of train_step, and a
/// measurement for each length. Memory: seven copies of the model, and the memory of a training
/// step.
///
/// Errors: InvalidArgument (options, no batches), FailedPrecondition (the subject was opened
/// before, cannot train its replica, or one of its closures failed), Cancelled, ResourceExhausted.
/// With DeadlineExceeded (of the context, or CooldownOptions::max_time) there is no result, while a
/// monitor keeps its partial result.
PTQWATCH_EXPORT absl::StatusOr<PredictedEnd> RunShadowCooldown(
    Subject& subject, const ShadowCooldownOptions& options, const ExecutionContext& context = {});

}  // namespace ptqwatch

#endif  // PTQWATCH_OFFLINE_SHADOW_COOLDOWN_H_
