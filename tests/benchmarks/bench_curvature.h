#ifndef PTQWATCH_BENCHMARKS_BENCH_CURVATURE_H_
#define PTQWATCH_BENCHMARKS_BENCH_CURVATURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gpt_under_test.h"

namespace ptqwatch::benchmarks {

/// What bench_curvature does; each prints to standard output.

/// The cost of gradients, graphs and products by every HessianMode, after `train_steps`.
absl::Status MeasureCosts(const GptConfig& config, int64_t train_steps, int repeats);

struct TrackOptions {
  int64_t snapshots = 30;
  int64_t spacing = 100;  ///< steps between snapshots
  double peak = 1e-2;     ///< learning rate
  std::string save;       ///< file for the snapshots' weights
  std::string load;       ///< file to take them from instead of training
  std::vector<double> residuals = {0.05, 0.02};
  bool warm_only = false;
};
/// Products that the top eigenvalue takes at each snapshot of a training run, cold and warm.
absl::Status TrackEigenvalue(const GptConfig& config, const TrackOptions& options);

}  // namespace ptqwatch::benchmarks

#endif  // PTQWATCH_BENCHMARKS_BENCH_CURVATURE_H_
