#ifndef PTQWATCH_CURVATURE_REPLICA_SURFACE_H_
#define PTQWATCH_CURVATURE_REPLICA_SURFACE_H_

#include <memory>
#include <vector>

#include "curvature/loss_surface.h"
#include "snapshot/replica.h"

namespace ptqwatch::internal {

/// The space of vectors with the elements of these entries of a replica.
VectorSpace SpaceOf(const Replica& replica, const std::vector<int>& scope);

/// The loss surface of a replica around the loaded snapshot. Holds the replica's one lease, so that
/// nobody else writes to the weights while it lives.
class ReplicaSurface final : public LossSurface {
 public:
  /// `scope` are the entries to move along, floating-point parameters. `total_weight` is the sum of
  /// the batches' loss weights: the mean loss is their sum over it. Both arguments by reference
  /// must outlive the surface. FailedPrecondition while the replica is leased.
  static absl::StatusOr<std::unique_ptr<ReplicaSurface>> Create(Replica* replica,
                                                                const std::vector<int>& scope,
                                                                const std::vector<Batch>* batches,
                                                                double total_weight);

  /// The displacement from the snapshot that the overrides make, in this surface's space; those
  /// outside of the scope are left out.
  Vector Displacement(const std::vector<Replica::Override>& overrides) const;

  /// Puts the overrides in place, over the snapshot's weights; those outside of the scope are left
  /// out.
  void Replace(const std::vector<Replica::Override>& overrides);

  const VectorSpace& space() const override { return space_; }
  const std::vector<Leaf>& leaves() const override { return leaves_; }
  size_t batches() const override { return batches_->size(); }
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
