#ifndef PTQWATCH_BENCHMARKS_BENCH_CURVATURE_H_
#define PTQWATCH_BENCHMARKS_BENCH_CURVATURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "curvature/symmetric_operator.h"
#include "gpt_under_test.h"

namespace ptqwatch::benchmarks {

// What bench_curvature does; each prints to standard output.

/// Learning rate where a model is only trained to be away from its start.
inline constexpr double kConstantRate = 3e-3;

/// The cost of gradients, graphs and products by every HessianMode after `train_steps`, and how far
/// a finite difference is from the exact product.
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
/// Products that the top eigenvalue takes at each snapshot of a training run, cold and warm; how
/// many values are within 3 % of the eigenvalue ("near"), and in how many snapshots that or the
/// interval holds ("sound").
absl::Status TrackEigenvalue(const GptConfig& config, const TrackOptions& options);

/// Writes a trained model and its curvature batches for compare_curvature: "now/" its weights after
/// `train_steps`, "before/" those of 100 steps (or of the first one) before, "inputs" and "targets"
/// [sequences, length].
absl::Status ExportModel(const GptConfig& config, const std::string& path, int64_t train_steps);
/// The top eigenpair of such a model, cold and warm-started from the earlier weights, and its
/// trace from so many probe vectors, as JSON.
absl::Status MeasureModel(const GptConfig& config, const std::string& path, int trace_probes);

/// ||Hv - value v|| / |value| by a product of its own. `v` has norm 1.
absl::StatusOr<double> TrueResidual(internal::SymmetricOperator& hessian, const internal::Vector& v,
                                    double value);

}  // namespace ptqwatch::benchmarks

#endif  // PTQWATCH_BENCHMARKS_BENCH_CURVATURE_H_
