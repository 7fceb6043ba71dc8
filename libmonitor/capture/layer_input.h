#ifndef PTQWATCH_CAPTURE_LAYER_INPUT_H_
#define PTQWATCH_CAPTURE_LAYER_INPUT_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "ptqwatch/quantizer.h"

namespace ptqwatch::internal {

/// How to read the rows x of y = W x from the tensor that a weight is multiplied with.
struct InputForm {
  enum class Kind {
    kRows,     ///< [.., d]
    kColumns,  ///< [.., d, n]: the weight was the left factor
    kWindows,  ///< images [N, C, spatial...] or [C, spatial...]; a row is a window of a
               ///< convolution, d = C * kernel
  };
  Kind kind = Kind::kRows;
  // For kWindows: one number per spatial dimension.
  std::vector<int64_t> kernel = {};
  std::vector<int64_t> stride = {};
  std::vector<int64_t> dilation = {};
  std::vector<int64_t> pad_before = {};
  std::vector<int64_t> pad_after = {};

  friend bool operator==(const InputForm&, const InputForm&) = default;
};

/// The tensor that a weight is multiplied with in one product.
struct LayerInput {
  at::Tensor tensor;
  InputForm form;
};

/// Calls `take` with the rows of an input as contiguous tensors [n, d], in blocks whose size
/// depends only on the shape: activations as one block, windows image by image in blocks of about
/// 4096 rows. Applies `convert` (dtype or device) to each block first. Stops at the first error.
absl::Status ForEachBlockOfRows(const LayerInput& input,
                                absl::FunctionRef<at::Tensor(const at::Tensor&)> convert,
                                absl::FunctionRef<absl::Status(const at::Tensor&)> take);
/// Same, as float32 on the host. The values are valid until `take` returns.
absl::Status ForEachBlockOfRows(const LayerInput& input,
                                absl::FunctionRef<absl::Status(MatrixView)> take);

/// The identity of an input. Two identities are equal if they view the same memory in the same way
/// and nothing was written to it in between.
///
/// Autograd's version counter detects writes. Writes through `variable_data()` are not detected,
/// and under inference mode no two identities are equal. The storage is held weakly, so reused
/// memory counts as another input.
class InputIdentity {
 public:
  explicit InputIdentity(const LayerInput& input);
  bool operator==(const InputIdentity& other) const;

 private:
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
  int64_t offset_;
  std::vector<int64_t> sizes_;
  std::vector<int64_t> strides_;
  at::ScalarType dtype_;
  bool versioned_;
  int64_t version_;
  InputForm form_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CAPTURE_LAYER_INPUT_H_
