#ifndef PTQWATCH_SNAPSHOT_REPLICA_H_
#define PTQWATCH_SNAPSHOT_REPLICA_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ptqwatch/subject.h"
#include "snapshot/tensor_table.h"
#include "trainer/staging.h"

namespace ptqwatch::internal {

/// The monitor's own copy of the model. All its tensors are views of one flat buffer per dtype,
/// beside which a second buffer keeps the loaded snapshot. Weights change only through Load and a
/// Lease. One thread at a time.
class Replica {
 public:
  /// A weight to put in the place of an entry: any shape and dtype of the same number of elements
  /// in the entry's logical order.
  struct Override {
    int entry = 0;
    at::Tensor value;
  };

  /// While it lives the overridden weights are in place; its destructor copies the snapshot's back
  /// (copies: adding and subtracting would not restore the last bit). At most one at a time. Where
  /// that copy fails (a broken device), the replica gives no lease until the next Load.
  class Lease {
   public:
    Lease(Lease&& other) noexcept
        : replica_(std::exchange(other.replica_, nullptr)), entries_(std::move(other.entries_)) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease();

    /// Overrides once more. Shape and dtype of the value as for Use.
    void Write(const Override& override);
    /// Puts the snapshot's weights back without ending the lease.
    void Restore();

   private:
    friend class Replica;
    Lease(Replica* replica, std::vector<int> entries)
        : replica_(replica), entries_(std::move(entries)) {}
    Replica* replica_;
    std::vector<int> entries_;
  };

  /// Builds the subject's replica under a GeneratorGuard, checks it against `live`, moves its
  /// tensors into flat buffers and requires that the losses of `check` are the same to the bit
  /// before and after, the same twice, and drawn without random numbers. FailedPrecondition saying
  /// what does not hold.
  static absl::StatusOr<std::unique_ptr<Replica>> Create(Subject* subject, const TensorTable& live,
                                                         const std::vector<const Batch*>& check);

  /// Loads a snapshot: buffers and weights. REQUIRES: no lease is alive.
  void Load(const std::vector<at::Tensor>& tensors);

  /// FailedPrecondition while another lease is alive, and after one that could not restore.
  absl::StatusOr<Lease> Use(absl::Span<const Override> overrides);

  /// Losses of a batch with the weights as they are now, without gradients. FailedPrecondition with
  /// the message of whatever the closure throws; ResourceExhausted where it is out of memory.
  absl::StatusOr<LossValues> Losses(const Batch& batch);
  /// The same with a graph to the leaves().
  absl::StatusOr<LossValues> LossesWithGraph(const Batch& batch);

  /// The model's own tensors behind an entry: what autograd knows the parameter by. Several where
  /// separate tensors are tied by memory.
  const std::vector<at::Tensor>& leaves(int entry) const {
    return leaves_[static_cast<size_t>(entry)];
  }
  /// Makes these parameters, and no others, require gradients.
  void SetDifferentiable(absl::Span<const int> entries);

  const TensorTable& table() const { return table_; }
  /// The entry as it is in the snapshot.
  const at::Tensor& loaded(int entry) const { return loaded_[static_cast<size_t>(entry)]; }
  /// Counts writes to the weights: whoever keeps something that depends on them (a retained graph)
  /// compares it.
  uint64_t generation() const { return generation_; }
  int64_t bytes() const { return 2 * table_.bytes(); }
  at::Device device() const { return table_.entries[0].tensor.device(); }

 private:
  Replica(Subject* subject, TensorTable table) : subject_(subject), table_(std::move(table)) {}
  void MoveIntoFlatBuffers(const std::vector<NamedTensor>& tensors);
  absl::StatusOr<LossValues> Evaluate(const Batch& batch);

  Subject* subject_;
  TensorTable table_;                                    // entry.tensor is the working view
  std::vector<at::Tensor> loaded_;                       // one per entry
  std::vector<std::vector<at::Tensor>> leaves_;          // per entry
  std::vector<std::pair<at::Tensor, at::Tensor>> flat_;  // {working, loaded} per dtype
  uint64_t generation_ = 0;
  bool leased_ = false;
  bool damaged_ = false;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_REPLICA_H_
