#ifndef PTQWATCH_VERDICT_H_
#define PTQWATCH_VERDICT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch {

/// The state of quantization error according to the series of reports. docs/verdicts.md describes
/// the method and its error rates.
enum class VerdictState {
  kUnknown = 0,           ///< no usable measurement, or the trained parameters do not change
  kWarmingUp = 1,         ///< too few snapshots at a high learning rate for a baseline
  kHealthy = 2,           ///< within the prediction of the baseline
  kDrifting = 3,          ///< grows from snapshot to snapshot while the learning rate is high
  kDecayDegradation = 4,  ///< an alarm: above the baseline since the learning rate began to fall
  kSpike = 5,             ///< an alarm: above the baseline, and no decay explains it
  kRecovering = 6,        ///< returning to the baseline after an alarm
  kUnclear = 7,           ///< the series contradict each other, or are too weak for an alarm
};

/// "unknown", "warming_up", "healthy", "drifting", "decay_degradation", "spike", "recovering",
/// "unclear".
PTQWATCH_EXPORT std::string_view ToString(VerdictState state);
/// InvalidArgument, listing the known names, for any other name.
PTQWATCH_EXPORT absl::StatusOr<VerdictState> ParseVerdictState(std::string_view name);

/// Whether the state is an alarm: kDecayDegradation or kSpike.
constexpr bool IsAlarm(VerdictState state) {
  return state == VerdictState::kDecayDegradation || state == VerdictState::kSpike;
}

/// One series of measurements, and its distance from its baseline.
struct Evidence {
  /// "loss_delta_gptq3", "curvature_along_error_gptq3", "critical_sharpness_gptq3",
  /// "displacement_gptq3", "trace", "weighted_trace", "noise_weighted_trace" (2 / s^2 times the
  /// loss increase under noise of relative norm s), or a combination of these: "quantization",
  /// "curvature". Not a series:
  /// "beyond_quadratic_gptq3", whose value is QuantizationReport::beyond_quadratic_scale.
  std::string series;
  std::optional<double> value;     ///< of the newest snapshot, in the series' unit
  std::optional<double> expected;  ///< by the baseline at that step
  /// Mean of value / expected since the onset.
  std::optional<double> ratio;
  /// The same mean on a logarithmic scale, divided by its standard error, which includes the
  /// scatter between checkpoints and the error of the baseline.
  std::optional<double> sigmas;
  friend bool operator==(const Evidence&, const Evidence&) = default;
};

/// The effect of a learning-rate decay on one quantizer's loss so far. Numbers are absent if the
/// data do not determine them.
struct DecayOutlook {
  std::optional<QuantizationMethod> method;
  int bits = 0;
  /// (CE(W_hat) at the onset - now) / (CE(W) at the onset - now): the share of the full-precision
  /// gain that survives quantization. 1: all of it; negative: the quantized model got worse.
  std::optional<double> gain_kept_ratio;
  std::optional<double> gain_kept_stderr;
  /// The smallest quantized loss of the decay, if it is significantly below the newest one.
  std::optional<double> minimum_loss_nats;
  std::optional<int64_t> minimum_step;
  std::optional<double> minimum_learning_rate;  ///< where to stop for this quantizer
  std::optional<std::string> format = {};       ///< absent: implied by the method
  friend bool operator==(const DecayOutlook&, const DecayOutlook&) = default;
};

enum class AdviceAction {
  kUnknown = 0,
  kStopDecay = 1,       ///< keep the current learning rate, or return to the best one
  kAverageWeights = 2,  ///< use an average of the last snapshots, named in the text
  kRaiseBits = 3,       ///< keep some layers at more bits
  kInspectRun = 4,      ///< a rise that no decay explains
  kUseQuantizer = 5,    ///< another quantizer of the run loses less in no more bytes
};
/// "unknown", "stop_decay", "average_weights", "raise_bits", "inspect_run", "use_quantizer".
PTQWATCH_EXPORT std::string_view ToString(AdviceAction action);
PTQWATCH_EXPORT absl::StatusOr<AdviceAction> ParseAdviceAction(std::string_view name);

/// A recommended action and its measured effect.
struct Advice {
  AdviceAction action = AdviceAction::kUnknown;
  std::optional<QuantizationMethod> method;
  int bits = 0;
  /// Value for the named quantizer now and after the action, in nats per token: the quantized loss
  /// for kStopDecay and kAverageWeights, the loss increase for kRaiseBits. For kUseQuantizer, the
  /// loss increase of the watched quantizer now, and of the named one.
  std::optional<double> now_nats;
  std::optional<double> expected_nats;
  std::optional<double> expected_stderr_nats;  ///< of the difference of the two
  std::string text;                            ///< one sentence, with these numbers
  std::optional<std::string> format = {};      ///< absent: implied by the method
  friend bool operator==(const Advice&, const Advice&) = default;
};

/// Judgement of the newest report from the series of reports. A pure function of the reports, so a
/// journal replays to the same verdicts.
struct Verdict {
  VerdictState state = VerdictState::kUnknown;
  /// First snapshot of the rise that `state` names. Over an alarm it may move to an earlier step,
  /// not to a later one.
  std::optional<int64_t> onset_step;
  /// The watched quantizer: GPTQ with the fewest bits from 3 up, if the run has one.
  std::optional<QuantizationMethod> method;
  int bits = 0;
  /// How far its loss increase CE(W_hat) - CE(W) exceeds the baseline's prediction, in nats per
  /// token with a 95 % interval: the mean over the snapshots since the onset or, without an alarm,
  /// over the snapshots with the strongest evidence for a rise.
  std::optional<double> severity_nats;
  std::optional<double> severity_low_nats;
  std::optional<double> severity_high_nats;
  /// The same as a ratio to the baseline; absent if the baseline cannot be distinguished from zero.
  std::optional<double> severity_ratio;
  std::optional<double> severity_low_ratio;
  std::optional<double> severity_high_ratio;
  /// Evidence for a rise, in standard errors: all series together, including the phase's prior. An
  /// alarm needs `alarm_sigmas`.
  std::optional<double> sigmas;
  std::optional<double> alarm_sigmas;
  std::vector<Evidence> evidence;
  std::vector<DecayOutlook> outlook;  ///< while the learning rate decays
  std::vector<Advice> advice;         ///< most useful first
  /// One sentence for people, with the numbers behind it.
  std::string summary;
  std::optional<std::string> format = {};  ///< absent: implied by the method
  /// As Report::decay_onset_step: the first step with a learning rate below the plateau.
  std::optional<int64_t> decay_onset_step = {};
  /// Step of the snapshot since which the full-precision loss has improved by less than 0.5 % per
  /// doubling of the steps (docs/verdicts.md), over all snapshots or those before the rate began to
  /// fall. Quantization error may rise from here rather than from the decay (arXiv 2604.15167).
  std::optional<int64_t> loss_converged_step = {};
  /// 95 % interval of `onset_step` in a decay.
  std::optional<int64_t> onset_low_step = {};
  std::optional<int64_t> onset_high_step = {};
  friend bool operator==(const Verdict&, const Verdict&) = default;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_VERDICT_H_
