#ifndef PTQWATCH_NOISE_REPORT_H_
#define PTQWATCH_NOISE_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>

namespace ptqwatch {

enum class ProbeStatus;  // report.h, which includes this

/// The loss under Gaussian noise in the quantized weights (arXiv 2605.02105): every element of a
/// weight W gets an independent draw of N(0, s^2 mean(W^2)), in all layers together. To second
/// order the expected increase is s^2 / 2 times CurvatureReport::weighted_trace, but measuring it
/// takes forward passes alone. The draws depend on the run's seed and the layers' names, so all
/// snapshots get the same ones.
struct NoiseReport {
  ProbeStatus status{};
  std::string status_detail = {};
  double relative_norm = 0;  ///< s: expected norm of a weight's noise, over the weight's
  int64_t draws = 0;         ///< different draws; each covers a part of the probe batches
  std::optional<double> delta_nats = {};  ///< CE(W + noise) - CE(W), on the same tokens
  /// Standard error of `delta_nats` over tokens and draws.
  std::optional<double> delta_stderr_nats = {};
  int64_t probe_tokens = 0;
  friend bool operator==(const NoiseReport&, const NoiseReport&) = default;
};

}  // namespace ptqwatch

#endif  // PTQWATCH_NOISE_REPORT_H_
