#ifndef PTQWATCH_CURVATURE_LOSS_SURFACE_H_
#define PTQWATCH_CURVATURE_LOSS_SURFACE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "curvature/vector_space.h"
#include "ptqwatch/execution_context.h"

namespace ptqwatch::internal {

/// What the curvature engine sees of a model: a mean loss on fixed batches as a function of some
/// parameters, at a point W from which it can be moved away and back. One thread at a time.
class LossSurface {
 public:
  /// A tensor that the loss is differentiated with respect to. A parameter that is tied under
  /// several tensors has a leaf for each; its derivative is their sum.
  struct Leaf {
    at::Tensor tensor;
    size_t part = 0;  ///< of space()
  };

  struct LossAndLogits {
    at::Tensor loss;
    at::Tensor logits;
  };

  virtual ~LossSurface() = default;
  virtual const VectorSpace& space() const = 0;
  virtual const std::vector<Leaf>& leaves() const = 0;
  virtual size_t batches() const = 0;
  /// The share of the data that is in batch `index`; they sum up to 1.
  virtual double Share(size_t /*index*/) const { return 1.0 / static_cast<double>(batches()); }

  /// The contribution of batch `index` to the mean loss: a float64 scalar, with a graph to leaves()
  /// when `with_graph`. FailedPrecondition with the message of whatever the model throws, or when
  /// the result has no graph.
  virtual absl::StatusOr<at::Tensor> Loss(size_t index, bool with_graph) = 0;

  /// The same with a graph, and the logits of which the loss is a function, in that graph.
  /// FailedPrecondition where the model returns none.
  virtual absl::StatusOr<LossAndLogits> LossWithLogits(size_t) {
    return absl::FailedPreconditionError("the losses closure gives no LossValues::logits");
  }

  /// Sets the parameters to W + scale * direction, or to W where `direction` is null.
  virtual absl::Status MoveTo(const Vector* direction, double scale) = 0;
  /// Changes with every write to the parameters, by anyone. A graph made at another generation
  /// gives wrong derivatives.
  virtual uint64_t generation() const = 0;
  /// ||W|| over the parameters of space().
  virtual double WeightNorm() const = 0;
};

/// The mean loss where the parameters are now, without gradients. DataLoss when it is not finite,
/// and errors as LossSurface::Loss. The context is checked once a batch.
absl::StatusOr<double> MeanLoss(LossSurface& surface, const ExecutionContext& context);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_LOSS_SURFACE_H_
