#ifndef PTQWATCH_CURVATURE_REPLICA_SURFACE_H_
#define PTQWATCH_CURVATURE_REPLICA_SURFACE_H_

#include <memory>
#include <vector>

#include "curvature/loss_surface.h"
#include "snapshot/replica.h"
#include "snapshot/unit_losses.h"

namespace ptqwatch::internal {

/// The space of vectors with the elements of these entries of a replica's table.
VectorSpace SpaceOf(const Replica& replica, const std::vector<int>& scope);

/// The loss surface of a replica around the loaded snapshot. Holds the replica's only lease, so
/// nothing else can write to the weights during its lifetime.
class ReplicaSurface final : public LossSurface {
 public:
  /// `scope`: the table entries of the parameters, which must be floating-point. `total_weight`:
  /// the sum of the batches' loss weights, by which the mean loss divides. `replica` and `batches`
  /// must outlive the surface. Returns FailedPrecondition while the replica is leased.
  static absl::StatusOr<std::unique_ptr<ReplicaSurface>> Create(Replica* replica,
                                                                const std::vector<int>& scope,
                                                                const std::vector<Batch>* batches,
                                                                double total_weight);

  /// The displacement from the snapshot to the overrides, in this surface's space. Overrides
  /// outside the scope are ignored.
  Vector Displacement(const std::vector<Replica::Override>& overrides) const;

  /// The losses of batch `index` at the current parameters, by unit, without gradients.
  absl::StatusOr<UnitLosses> LossesByUnit(size_t index);

  /// Replaces the snapshot's weights with the overrides. Overrides outside the scope are ignored.
  void Replace(const std::vector<Replica::Override>& overrides);

  const VectorSpace& space() const override { return space_; }
  const std::vector<Leaf>& leaves() const override { return leaves_; }
  size_t batches() const override { return batches_->size(); }
  /// The batch's share of the rows of all batches' first tensors.
  double Share(size_t index) const override;
  absl::StatusOr<at::Tensor> Loss(size_t index, bool with_graph) override;
  absl::StatusOr<LossAndLogits> LossWithLogits(size_t index) override;
  absl::Status MoveTo(const Vector* direction, double scale) override;
  uint64_t generation() const override { return replica_->generation(); }
  double WeightNorm() const override;

 private:
  absl::StatusOr<LossAndLogits> Evaluate(size_t index, bool with_graph);
  ReplicaSurface(Replica* replica, Replica::Lease lease, const std::vector<int>& scope,
                 const std::vector<Batch>* batches, double total_weight);

  Replica* replica_;
  Replica::Lease lease_;
  std::vector<int> scope_;
  const std::vector<Batch>* batches_;
  double total_weight_;
  VectorSpace space_;
  std::vector<Leaf> leaves_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CURVATURE_REPLICA_SURFACE_H_
