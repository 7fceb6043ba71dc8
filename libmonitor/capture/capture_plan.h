#ifndef PTQWATCH_CAPTURE_CAPTURE_PLAN_H_
#define PTQWATCH_CAPTURE_CAPTURE_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "capture/product_watcher.h"
#include "ptqwatch/options.h"
#include "ptqwatch/report.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// A weight that is multiplied with activations in the forward pass, as a matrix [m, d].
struct CoveredLayer {
  int entry = 0;  ///< in the replica's table
  std::string name;
  int64_t outputs = 0;      ///< m
  int64_t inputs = 0;       ///< d
  bool transposed = false;  ///< stored as [inputs, outputs]
  int gram = 0;             ///< layers that see the same inputs share one

  /// A tensor of the weight's shape as a float32 [m, d] matrix on the host, contiguous.
  at::Tensor AsMatrix(const at::Tensor& stored) const;
  /// A [m, d] matrix in the logical order of the stored weight.
  at::Tensor AsStored(const at::Tensor& matrix) const { return transposed ? matrix.t() : matrix; }
};

/// Which layers are quantized and where their inputs come from; made once, from one forward pass.
struct CapturePlan {
  std::vector<CoveredLayer> layers;  ///< in order of first use
  std::vector<SkippedLayer> skipped;
  std::vector<int64_t> gram_inputs;  ///< d of each Gram matrix
  /// The Grams in the order in which sequential calibration takes them: by the place in the forward
  /// pass from which on all that its layers see is known, which is a layer's last use, and of
  /// several layers with the same inputs the first such place.
  std::vector<int> stages;
  int64_t covered_parameters = 0;

  int64_t gram_bytes() const;
  /// The Grams cut into runs, in order, of which each holds at most `max_bytes` (or a single Gram).
  std::vector<std::vector<int>> Passes(int64_t max_bytes) const;
};

/// Bytes of the Gram matrix of so many inputs.
constexpr int64_t GramBytes(int64_t inputs) { return 8 * inputs * inputs; }

/// Watches one forward pass of `batch` on the replica; what counts as a layer is ProductWatcher's.
/// A weight whose Gram matrix alone is larger than `max_gram_bytes` is left out, whatever the
/// method, so that all quantizers cover the same layers. FailedPrecondition when the closure
/// throws, when this build cannot read LibTorch's records, or when nothing is left to quantize.
absl::StatusOr<CapturePlan> PlanCapture(Replica& replica, const Batch& batch,
                                        const LayerSelection& selection, int64_t max_gram_bytes);

/// One forward pass under a watcher; FailedPrecondition when the closure throws or the watcher met
/// a problem.
absl::Status RunWatched(Replica& replica, const Batch& batch, const ProductWatcher& watcher);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CAPTURE_CAPTURE_PLAN_H_
