#ifndef PTQWATCH_SNAPSHOT_TENSOR_TABLE_H_
#define PTQWATCH_SNAPSHOT_TENSOR_TABLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/subject.h"

namespace ptqwatch::internal {

/// One piece of a model's memory, under its canonical (first listed) name.
struct TensorEntry {
  std::string name;
  std::vector<std::string> aliases;  ///< other names of the same memory (tied weights)
  bool is_parameter = true;
  at::Tensor tensor;
};

/// Where a part lies in the whole tensor, as in NamedTensor; empty for whole tensors.
struct PartPlace {
  std::vector<int64_t> global_shape;
  std::vector<int64_t> offset;
  friend bool operator==(const PartPlace&, const PartPlace&) = default;
};

/// A model's tensors with ties resolved. `index[i]` is the entry of the i-th listed tensor.
struct TensorTable {
  std::vector<TensorEntry> entries;
  std::vector<std::string> names;
  std::vector<int> index;
  std::vector<PartPlace> places;  ///< of each listed tensor
  /// The dtype to which parameters in float32 are rounded in copies
  /// (MonitorOptions::snapshot_dtype) or, if this table is of copies, were rounded.
  std::optional<at::ScalarType> rounding = {};

  int64_t parameters() const;  ///< elements of all parameters; tied ones count once
  int64_t bytes() const;
};

/// The dtype of that name to which snapshots may be rounded; nullopt for others.
std::optional<at::ScalarType> RoundingType(std::string_view name);
/// The dtype of a copy of an entry of the table.
at::ScalarType CopiedType(const TensorTable& table, const TensorEntry& entry);
/// The dtype of an entry before it was copied.
at::ScalarType OriginalType(const TensorTable& table, const TensorEntry& entry);

/// The entries that are floating-point parameters.
std::vector<int> FloatingParameters(const TensorTable& table);

/// "[2, 3]".
std::string ShapeText(const at::Tensor& tensor);

/// Returns whether the storage holds all elements. A trainer may free or shrink the storage of a
/// tensor, whose sizes stay (sharded and offloaded parameters).
bool HasMemory(const at::Tensor& tensor);

/// Whether a table may have tensors of which this process has a part (NamedTensor::global_shape).
enum class Parts { kRefused, kAllowed };

/// Groups tensors that share memory, by TensorImpl or address. Returns FailedPrecondition for
/// tensors that overlap partly or are not dense, for a model without parameters, and for parts that
/// are refused.
absl::StatusOr<TensorTable> MakeTensorTable(const std::vector<NamedTensor>& tensors,
                                            Parts parts = Parts::kRefused);
/// The same for the live model: also FailedPrecondition if it is on several devices.
absl::StatusOr<TensorTable> MakeLiveTable(const std::vector<NamedTensor>& tensors,
                                          Parts parts = Parts::kRefused);

/// Returns ok if `replica` has the names, shapes, dtypes and ties of `live` and memory of its own,
/// else FailedPrecondition naming the first difference. Parameters of `live` may be rounded.
absl::Status CheckSameLayout(const TensorTable& live, const TensorTable& replica);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_TENSOR_TABLE_H_
