#ifndef PTQWATCH_TESTS_UNIT_ANALYSIS_ANALYSIS_FIXTURE_H_
#define PTQWATCH_TESTS_UNIT_ANALYSIS_ANALYSIS_FIXTURE_H_

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "analysis/analyzer.h"
#include "ptqwatch/report.h"

namespace ptqwatch::internal {

inline constexpr double kLoss = 2.0;
inline constexpr double kRate = 0.01;

inline QuantizationReport Entry(QuantizationMethod method, int bits, double delta) {
  QuantizationReport entry;
  entry.method = method;
  entry.bits = bits;
  entry.group_size = 128;
  entry.status = ProbeStatus::kOk;
  entry.delta_nats = delta;
  entry.loss_nats = kLoss + delta;
  entry.delta_stderr_nats = 0.04 * delta;
  return entry;
}

/// One quantizer, 3-bit GPTQ, and no curvature.
inline Report At(int64_t step, double delta, double rate = kRate) {
  Report report;
  report.fingerprint.push_back('f');  // GCC 12 warns of an assignment (bug 105651)
  report.sequence = step;
  report.step = step;
  report.learning_rate = rate;
  report.lr_phase = rate == kRate ? LrPhase::kStable : LrPhase::kDecay;
  report.probe_status = ProbeStatus::kOk;
  report.probe_loss_nats = kLoss;
  report.quantization = {Entry(QuantizationMethod::kGptq, 3, delta)};
  return report;
}

inline void SetTrace(Report& report, double trace) {
  report.curvature.emplace();
  report.curvature->status = ProbeStatus::kOk;
  report.curvature->trace = trace;
}

/// The loss under noise of a tenth of the weights' norm.
inline void SetNoise(Report& report, double weighted_trace) {
  NoiseReport& noise = report.noise.emplace();
  noise.status = ProbeStatus::kOk;
  noise.relative_norm = 0.1;
  noise.delta_nats = 0.005 * weighted_trace;
}

/// The stable phase of a real run: 16 snapshots, 0.09 to 0.11 nats.
inline const std::vector<double> kStable = {0.092, 0.104, 0.096, 0.089, 0.101, 0.107, 0.094, 0.099,
                                            0.110, 0.091, 0.097, 0.103, 0.095, 0.100, 0.106, 0.098};

/// Feeds the stable phase, a snapshot every 800 steps; returns the last verdict.
inline Verdict FeedStable(Analyzer& analyzer, size_t count = kStable.size()) {
  Verdict verdict;
  for (size_t i = 0; i < count; ++i) {
    Report report = At(800 * static_cast<int64_t>(i + 1), kStable[i]);
    SetTrace(report, 120 + 5 * std::sin(static_cast<double>(i)));
    verdict = analyzer.Add(report);
  }
  return verdict;
}

/// Snapshots of four quantizers and a trace whose logarithms scatter independently, and of the loss
/// under noise if it has a scatter.
struct Stream {
  double scatter = 0.12;
  double trace_scatter = 0.06;
  double noise_scatter = 0;
  int trace_every = 1;  ///< snapshots
  double growth = 0;    ///< of the logarithm of the error, a snapshot
  int quantizers = 4;
  std::mt19937_64 random{1};

  Report Next(int64_t snapshot, double factor = 1, double rate = kRate) {
    std::normal_distribution<double> normal;
    Report report = At(1000 * snapshot, 0, rate);
    report.quantization.clear();
    const double course = growth * static_cast<double>(snapshot) + std::log(factor);
    constexpr double kLevels[] = {0.1, 0.13, 0.02, 0.03};
    for (int i = 0; i < quantizers; ++i) {
      report.quantization.push_back(
          Entry(i % 2 == 0 ? QuantizationMethod::kGptq : QuantizationMethod::kRtn, i < 2 ? 3 : 4,
                kLevels[i] * std::exp(course + scatter * normal(random))));
    }
    if (trace_scatter > 0 && snapshot % trace_every == 0) {
      SetTrace(report, 100 * std::exp(course + trace_scatter * normal(random)));
    }
    if (noise_scatter > 0) SetNoise(report, 6 * std::exp(course + noise_scatter * normal(random)));
    return report;
  }
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TESTS_UNIT_ANALYSIS_ANALYSIS_FIXTURE_H_
