#ifndef PTQWATCH_PREDICTED_END_H_
#define PTQWATCH_PREDICTED_END_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ptqwatch/config.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch {

enum class ProbeStatus;  // report.h, which includes this

/// How a learning rate falls from r to `final_ratio` r. After the share t of the decay's steps it
/// is (final_ratio + (1 - final_ratio) s(t)) r.
enum class DecayShape {
  kLinear = 0,        ///< s = 1 - t
  kOneMinusSqrt = 1,  ///< s = 1 - sqrt(t) (arXiv 2405.18392)
  kCosine = 2,        ///< s = (1 + cos(pi t)) / 2
};
/// "linear", "one_minus_sqrt", "cosine".
PTQWATCH_EXPORT std::string_view ToString(DecayShape shape);
PTQWATCH_EXPORT absl::StatusOr<DecayShape> ParseDecayShape(std::string_view name);

/// The cost of one quantizer at the end of a simulated decay.
struct SimulatedError {
  std::optional<QuantizationMethod> method;
  int bits = 0;
  std::optional<double> error_ratio;  ///< CE(W_hat) / CE(W) - 1
  std::optional<double> error_ratio_stderr;
  std::optional<std::string> format = {};  ///< absent: implied by the method
  friend bool operator==(const SimulatedError&, const SimulatedError&) = default;
};

/// The end of one simulated decay of the learning rate.
struct SimulatedDecay {
  int64_t steps = 0;         ///< of this decay
  int64_t settle_steps = 0;  ///< before it at the full rate, for a new optimizer to settle
  ProbeStatus status{};
  std::string status_detail;
  std::optional<double> loss_nats;  ///< CE(W) on the probe tokens
  std::optional<double> trace;      ///< of the Hessian, if curvature is measured
  std::optional<double> top_eigenvalue;
  std::vector<SimulatedError> quantization;
  double seconds = 0;  ///< of work, training and measuring
  friend bool operator==(const SimulatedDecay&, const SimulatedDecay&) = default;
};

/// Predicted cost of one quantizer at the end of the planned decay, with a 95 % interval.
struct PredictedError {
  std::optional<QuantizationMethod> method;
  int bits = 0;
  std::optional<double> error_ratio;
  std::optional<double> error_low_ratio;
  std::optional<double> error_high_ratio;
  std::optional<std::string> format = {};  ///< absent: implied by the method
  friend bool operator==(const PredictedError&, const PredictedError&) = default;
};

/// The result of a shadow cooldown: the predicted end of the planned learning-rate decay, from
/// decays simulated on a copy of the model. docs/cooldown.md describes the method and its errors.
struct PredictedEnd {
  ProbeStatus status{};
  std::string status_detail;
  int64_t step = 0;          ///< of the snapshot that was trained
  double learning_rate = 0;  ///< at the start of the decay
  std::optional<DecayShape> shape;
  int64_t decay_steps = 0;          ///< of the planned decay
  int64_t simulated_steps = 0;      ///< optimizer steps of all simulations
  double seconds = 0;               ///< of work
  std::optional<double> loss_nats;  ///< CE(W) at the end, with a 95 % interval
  std::optional<double> loss_low_nats;
  std::optional<double> loss_high_nats;
  std::optional<double> trace;
  std::optional<double> trace_low;
  std::optional<double> trace_high;
  std::vector<PredictedError> quantization;
  std::vector<SimulatedDecay> decays;  ///< shortest first
  friend bool operator==(const PredictedEnd&, const PredictedEnd&) = default;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_PREDICTED_END_H_
