#ifndef PTQWATCH_CAPTURE_WEIGHT_FINDER_H_
#define PTQWATCH_CAPTURE_WEIGHT_FINDER_H_

#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "snapshot/tensor_table.h"

namespace ptqwatch::internal {

/// The sizes of a tensor, and the strides of its dimensions with more than one element.
struct Layout {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  ///< 0 for dimensions of one element

  static Layout Of(const at::Tensor& tensor);
  /// With the last two dimensions exchanged. REQUIRES: there are two.
  Layout Transposed() const;
  friend bool operator==(const Layout&, const Layout&) = default;
};

/// How a tensor of the forward pass relates to a parameter.
struct FoundWeight {
  int entry = 0;  ///< in the table
  /// A view of the parameter's own memory with the tensor's values. Undefined if the tensor is a
  /// part of a copy or another view of it.
  at::Tensor view;
  bool rewritten = false;  ///< the tensor is a copy that was written to later
};

/// Finds the parameter that a tensor belongs to by its memory. The tensor is a view of the
/// parameter, or of a copy of it (made by `to`, `contiguous` or `clone`) recorded by NoteCopy.
/// Copies are identified by their storage, held weakly: it is not kept alive, and reused memory is
/// never mistaken for a copy. Not thread-safe.
class WeightFinder {
 public:
  /// `table` must outlive the finder, and its parameters must keep their addresses.
  explicit WeightFinder(const TensorTable& table);

  std::optional<FoundWeight> Find(const at::Tensor& tensor) const;
  /// Records that `copy` has the values of `original`, perhaps rounded, and the same sizes. Does
  /// nothing if `copy` has no memory of its own.
  void NoteCopy(const FoundWeight& original, const at::Tensor& copy);

  /// Records that `written` was written to. Its version does not tell if it is the `.data` of a
  /// copy.
  void NoteWrite(const at::Tensor& written);

  /// Returns whether the weight is the transpose of a whole matrix.
  bool IsTurned(const FoundWeight& weight) const;
  const at::Tensor& parameter(int entry) const {
    return table_.entries[static_cast<size_t>(entry)].tensor;
  }

 private:
  struct Copy {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // keeps the key unique
    FoundWeight original;
    Layout layout;
    int64_t offset = 0;
    int64_t version = 0;
  };

  // The parameter at the address, or -1.
  int EntryAt(const void* address) const;

  const TensorTable& table_;
  std::map<const char*, int> entry_at_;  // first byte of each parameter
  std::unordered_map<const c10::StorageImpl*, Copy> copies_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CAPTURE_WEIGHT_FINDER_H_
