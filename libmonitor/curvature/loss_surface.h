#ifndef PTQWATCH_CURVATURE_LOSS_SURFACE_H_
#define PTQWATCH_CURVATURE_LOSS_SURFACE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "curvature/vector_space.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// The curvature engine's view of a model: a mean loss on fixed batches as a function of some
/// parameters, at a point W from which it can be moved away and back. Not thread-safe.
class LossSurface {
 public:
  /// A tensor with respect to which the loss is differentiated. A parameter tied under several
  /// tensors has a leaf for each; its derivative is their sum.
  struct Leaf {
    at::Tensor tensor;
    size_t part = 0;  ///< index in space().parts()
  };

  struct LossAndLogits {
    at::Tensor loss;
    at::Tensor logits;
  };

  virtual ~LossSurface() = default;
  virtual const VectorSpace& space() const = 0;
  virtual const std::vector<Leaf>& leaves() const = 0;
  virtual size_t batches() const = 0;
  /// Batch `index`'s share of the data. The shares sum up to 1.
  virtual double Share(size_t /*index*/) const { return 1.0 / static_cast<double>(batches()); }

  /// The contribution of batch `index` to the mean loss: a float64 scalar, with a graph to leaves()
  /// if `with_graph`. Returns FailedPrecondition if the model throws (with its message), or if the
  /// result has no graph.
  virtual absl::StatusOr<at::Tensor> Loss(size_t index, bool with_graph) = 0;

  /// The loss with a graph, and its logits in that graph. FailedPrecondition without logits.
  virtual absl::StatusOr<LossAndLogits> LossWithLogits(size_t) {
    return absl::FailedPreconditionError("the losses closure returns no LossValues::logits");
  }

  /// Sets the parameters to W + scale * direction, or to W if `direction` is null.
  virtual absl::Status MoveTo(const Vector* direction, double scale) = 0;
  /// Changes with every write to the parameters, whoever writes. A graph made at other values gives
  /// wrong derivatives.
  virtual uint64_t generation() const = 0;
  /// ||W|| over the parameters of space().
  virtual double WeightNorm() const = 0;
};

/// The mean loss at the current parameters, without gradients. Checks the context once per batch.
/// Returns DataLoss if the loss is not finite; other errors as LossSurface::Loss.
absl::StatusOr<double> MeanLoss(LossSurface& surface, const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_LOSS_SURFACE_H_
