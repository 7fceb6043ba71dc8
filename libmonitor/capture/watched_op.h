#ifndef PTQWATCH_CAPTURE_WATCHED_OP_H_
#define PTQWATCH_CAPTURE_WATCHED_OP_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"
#include "capture/layer_input.h"

namespace ptqwatch::internal {

enum class OpKind {
  kProduct,  ///< of two matrices
  kLinear,   ///< of a matrix and the transpose of another
  kConvolution,
  kTransposedConvolution,
  kGeneralConvolution,  ///< either, as an argument says
  kBilinear,
  kRecurrentLayer,
  kLookUp,
  kCopy,
};

/// An operator whose arguments are known.
struct WatchedOp {
  std::string_view name;  ///< without "aten::"
  OpKind kind;
  size_t left = 0;  ///< argument of a product
  size_t right = 1;
};

/// Null for an operator that is not known. `name` is that of a record, "aten::mm".
const WatchedOp* FindOp(std::string_view name);

/// Whether an operator makes copies, or tensors of the same shape, and nothing else.
bool OnlyCopies(std::string_view name);

/// Undefined if argument `i` is no tensor.
at::Tensor TensorAt(c10::ArrayRef<const c10::IValue> inputs, size_t i);

/// The groups of a convolution with these arguments.
int64_t GroupsOf(OpKind kind, c10::ArrayRef<const c10::IValue> inputs);
bool IsTransposed(OpKind kind, c10::ArrayRef<const c10::IValue> inputs);
/// The windows that one that is not transposed multiplies with.
InputForm WindowsOf(c10::ArrayRef<const c10::IValue> inputs, at::IntArrayRef kernel);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CAPTURE_WATCHED_OP_H_
