#ifndef PTQWATCH_SNAPSHOT_REPLICA_H_
#define PTQWATCH_SNAPSHOT_REPLICA_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ptqwatch/subject.h"
#include "snapshot/tensor_table.h"

namespace ptqwatch::internal {

/// The monitor's own copy of the model. All its tensors are views of one flat buffer per dtype; a
/// second buffer per dtype keeps the loaded snapshot. Only Load, a Lease and a StandIn change
/// weights. Not thread-safe.
class Replica {
 public:
  /// A value for an entry: its elements in logical order, in any shape and dtype.
  struct Override {
    int entry = 0;
    at::Tensor value;
  };

  /// Keeps overridden weights in place during its lifetime. The destructor copies the snapshot's
  /// weights back (adding and subtracting would not restore the last bit). At most one exists at a
  /// time. If that fails (a broken device), the replica grants no lease until the next Load.
  class Lease {
   public:
    Lease(Lease&& other) noexcept
        : replica_(std::exchange(other.replica_, nullptr)), entries_(std::move(other.entries_)) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease();

    /// Overrides one more entry, or an overridden one again.
    void Write(const Override& override);
    /// Overrides an entry with its snapshot value + scale * `direction`, of the entry's shape.
    void Move(int entry, const at::Tensor& direction, double scale);
    /// Restores the snapshot's weights without ending the lease.
    void Restore();

   private:
    friend class Replica;
    // Returns the entry's tensor, for writing.
    at::Tensor Overridden(int entry);
    Lease(Replica* replica, std::vector<int> entries)
        : replica_(replica), entries_(std::move(entries)) {}
    Replica* replica_;
    std::vector<int> entries_;
  };

  /// Replaces loaded values during its lifetime: users of the replica take them for the snapshot.
  /// The destructor restores the snapshot bit for bit. If that fails (a broken device), the replica
  /// grants no lease until the next Load.
  class StandIn {
   public:
    StandIn(StandIn&& other) noexcept
        : replica_(std::exchange(other.replica_, nullptr)), values_(std::move(other.values_)) {}
    StandIn& operator=(StandIn&&) = delete;
    ~StandIn();

   private:
    friend class Replica;
    StandIn(Replica* replica, std::vector<Override> values)
        : replica_(replica), values_(std::move(values)) {}
    void Exchange();
    Replica* replica_;
    std::vector<Override> values_;  // the values not currently in the replica
  };

  /// Builds the subject's replica, checks it against `live`, moves its tensors to `device` (by
  /// default, the device of the live tensors), copies the live weights into it and moves its
  /// tensors into flat buffers. For each batch of `check`, the losses must be finite, repeatable
  /// bit for bit, unchanged by the move, and must change with the weights, but their weights must
  /// not. Losses that are all masked out, or 0, cannot change: if those of the first batch are, the
  /// first batch of `more` with others is checked too. Computing losses must not draw from a
  /// default random generator, change a parameter or buffer, or leave a module in training mode.
  /// Errors: FailedPrecondition naming the violation, or ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<Replica>> Create(Subject* subject, const TensorTable& live,
                                                         std::vector<const Batch*> check,
                                                         std::optional<at::Device> device = {},
                                                         absl::Span<const Batch> more = {});

  /// Loads a snapshot: buffers and weights. REQUIRES: no lease or stand-in is alive.
  void Load(const std::vector<at::Tensor>& tensors);

  /// Replaces loaded values with `values` of the entries' shapes and dtypes. Takes no memory beyond
  /// theirs. Returns FailedPrecondition while a lease or another stand-in is alive, and after one
  /// that could not restore. May throw; then nothing was replaced.
  absl::StatusOr<StandIn> Replace(std::vector<Override> values);

  /// Returns FailedPrecondition while another lease is alive, and after one that could not restore.
  absl::StatusOr<Lease> Use(absl::Span<const Override> overrides);

  /// Losses of a batch with the current weights, without gradients. Returns FailedPrecondition if
  /// the closure throws (with its message), draws from a default random generator or leaves a
  /// module in training mode; ResourceExhausted if it runs out of memory.
  absl::StatusOr<LossValues> Losses(const Batch& batch);
  /// Same, with an autograd graph to the leaves().
  absl::StatusOr<LossValues> LossesWithGraph(const Batch& batch);

  /// Makes a part of a parameter an entry of its own, for overrides, loaded() and name(). The part
  /// is contiguous, has `sizes` and starts at element `first` of the parameter. Returns the entry's
  /// number, which is above those of the table and the same for the same part. REQUIRES: the
  /// parameter is contiguous; its parts do not overlap.
  int AddPart(int parameter, int64_t first, std::vector<int64_t> sizes, std::string name);
  /// The parameter that contains an entry; for an entry of the table, the entry itself.
  int ParameterOf(int entry) const;
  const std::string& name(int entry) const;
  /// Offset of a part's first element in its parameter; 0 for entries of the table.
  int64_t first_element(int entry) const;
  /// A range of a parameter's elements: its name and its number of elements.
  using Piece = std::pair<std::string, int64_t>;
  /// Divides a parameter with parts from its first element to its last: the parts, and the elements
  /// between them as "NAME (rest)". Empty if the parameter has no parts.
  std::vector<Piece> PiecesOf(int parameter) const;

  /// The model's own tensors for an entry, to which autograd attaches gradients. There are several
  /// if separate tensors share the memory.
  const std::vector<at::Tensor>& leaves(int entry) const {
    return leaves_[static_cast<size_t>(entry)];
  }
  /// Makes exactly these entries require gradients.
  void SetDifferentiable(absl::Span<const int> entries);

  const TensorTable& table() const { return table_; }
  /// The entry's values in the loaded snapshot.
  at::Tensor loaded(int entry) const;
  /// Number of writes to the weights so far. A change shows that state derived from the weights (a
  /// retained graph) is out of date.
  uint64_t generation() const { return generation_; }
  int64_t bytes() const { return 2 * table_.bytes(); }
  /// The most memory that evaluating one of the checked batches took.
  int64_t forward_bytes() const { return forward_bytes_; }
  at::Device device() const { return table_.entries[0].tensor.device(); }

 private:
  struct Part {
    int parameter = 0;
    int64_t first = 0;
    int64_t elements = 0;
    std::vector<int64_t> sizes;
    std::string name;
  };
  Replica(Subject* subject, TensorTable table) : subject_(subject), table_(std::move(table)) {}
  // Returns the first batch with a loss that is neither masked nor 0.
  absl::StatusOr<const Batch*> FirstWithLosses(absl::Span<const Batch> batches);
  absl::StatusOr<std::vector<LossValues>> CheckRepeatable(const std::vector<const Batch*>& check,
                                                          const std::vector<at::Tensor>& before);
  void MoveIntoFlatBuffers(const std::vector<NamedTensor>& tensors);
  absl::Status CheckUsesOwnWeights(const std::vector<const Batch*>& check,
                                   const std::vector<LossValues>& before);
  absl::StatusOr<LossValues> Evaluate(const Batch& batch);
  // Null for entries of the table.
  const Part* PartAt(int entry) const;
  at::Tensor Working(int entry) const;
  // Returns ok if the weights may be changed.
  absl::Status CheckFree() const;

  Subject* subject_;
  TensorTable table_;                                    // entry.tensor is the working view
  std::vector<at::Tensor> loaded_;                       // one per entry
  std::vector<Part> parts_;                              // entries after the table's
  std::vector<std::vector<at::Tensor>> leaves_;          // per entry
  std::vector<std::pair<at::Tensor, at::Tensor>> flat_;  // {working, loaded} per dtype
  int64_t forward_bytes_ = 0;
  uint64_t generation_ = 0;
  bool leased_ = false;
  bool replaced_ = false;
  bool damaged_ = false;
};

/// Different weights. The change is large enough to change any loss that depends on the weights.
at::Tensor Perturbed(const at::Tensor& weights);

/// The weights from each quantizer, in their order. Empty for a quantizer that failed.
using QuantizedWeights = std::vector<std::vector<Replica::Override>>;

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_REPLICA_H_
