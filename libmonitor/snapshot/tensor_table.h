#ifndef PTQWATCH_SNAPSHOT_TENSOR_TABLE_H_
#define PTQWATCH_SNAPSHOT_TENSOR_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ptqwatch/subject.h"

namespace ptqwatch::internal {

/// One piece of memory of a model, under its canonical (first listed) name.
struct TensorEntry {
  std::string name;
  std::vector<std::string> aliases;  ///< further names of the same memory (tied weights)
  bool is_parameter = true;
  at::Tensor tensor;
};

/// A model's tensors with ties resolved. `index[i]` is the entry of the i-th listed tensor.
struct TensorTable {
  std::vector<TensorEntry> entries;
  std::vector<std::string> names;
  std::vector<int> index;

  int64_t parameters() const;  ///< elements of parameters, tied ones once
  int64_t bytes() const;
};

/// "[2, 3]".
std::string ShapeText(const at::Tensor& tensor);

/// Groups aliases by TensorImpl and memory range. FailedPrecondition for tensors that overlap in
/// part, are not dense, or are none.
absl::StatusOr<TensorTable> MakeTensorTable(const std::vector<NamedTensor>& tensors);

/// Ok when `replica` has the names, shapes, dtypes and ties of `live`; else FailedPrecondition
/// naming the first difference.
absl::Status CheckSameLayout(const TensorTable& live, const TensorTable& replica);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_TENSOR_TABLE_H_
