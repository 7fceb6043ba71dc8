#ifndef PTQWATCH_CAPTURE_WEIGHT_FINDER_H_
#define PTQWATCH_CAPTURE_WEIGHT_FINDER_H_

#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "snapshot/tensor_table.h"

namespace ptqwatch::internal {

/// Sizes, and strides wherever more than one element lies along a dimension.
struct Layout {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  ///< 0 where it does not matter

  static Layout Of(const at::Tensor& tensor);
  /// Of the transpose of a matrix.
  Layout Transposed() const;
  friend bool operator==(const Layout&, const Layout&) = default;
};

/// What a tensor of the forward pass has to do with a parameter.
struct FoundWeight {
  int entry = 0;  ///< in the table
  /// A view of the parameter's own memory with the numbers that the tensor has. Undefined where the
  /// tensor is only a part or another view of a copy.
  at::Tensor view;
  bool rewritten = false;  ///< a copy that was written to since it was made
};

/// Tells which parameter a tensor belongs to, by its memory: a view of the parameter, or of a copy
/// of it (made by `to`, `contiguous` or `clone`) that NoteCopy was told of. Copies are known by
/// their storage, held weakly: they live no longer for it, and memory that is used again for
/// another tensor is never mistaken for them. One thread's own.
class WeightFinder {
 public:
  /// `table` must outlive the finder; its parameters stay where they are.
  explicit WeightFinder(const TensorTable& table);

  std::optional<FoundWeight> Find(const at::Tensor& tensor) const;
  /// `copy` has the numbers of `original`, perhaps rounded, under the same sizes. Does nothing
  /// where it has no memory of its own.
  void NoteCopy(const FoundWeight& original, const at::Tensor& copy);

  const at::Tensor& parameter(int entry) const {
    return table_.entries[static_cast<size_t>(entry)].tensor;
  }

 private:
  struct Copy {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // keeps the key from being used again
    FoundWeight original;
    Layout layout;
    int64_t offset = 0;
    int64_t version = 0;
  };

  // -1 where no parameter has that byte.
  int EntryAt(const void* address) const;

  const TensorTable& table_;
  std::map<const char*, int> entry_at_;  // first byte of each parameter
  std::unordered_map<const c10::StorageImpl*, Copy> copies_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CAPTURE_WEIGHT_FINDER_H_
