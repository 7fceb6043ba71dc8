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
  kProduct,  ///< a product of two matrices
  kGrouped,  ///< products of runs of rows, each with a matrix of its own
  kLinear,   ///< a product of a matrix and the transpose of another
  kConvolution,
  kTransposedConvolution,
  kGeneralConvolution,  ///< either convolution, depending on an argument
  kBilinear,
  kRecurrentLayer,
  kLookUp,
  kChoice,  ///< a top-k
  kCopy,
};

/// An operator whose arguments are known.
struct WatchedOp {
  std::string_view name;  ///< without "aten::"
  OpKind kind;
  size_t left = 0;  ///< argument index
  size_t right = 1;
};

/// Returns null for an unknown operator. `name` is that of a record, for example "aten::mm".
const WatchedOp* FindOp(std::string_view name);

/// Returns whether an operator only makes copies, or tensors of the same shape.
bool OnlyCopies(std::string_view name);

/// Returns whether an operator writes to its first argument, as "aten::mul_" does.
bool WritesInPlace(std::string_view name);

/// Argument `i`; undefined if it is not a tensor.
at::Tensor TensorAt(c10::ArrayRef<const c10::IValue> inputs, size_t i);

/// The index [S] of a look-up that picks entries of the first dimension; undefined for any other.
at::Tensor PickedRows(std::string_view name, c10::ArrayRef<const c10::IValue> inputs);

/// Whether a look-up of a matrix picks rows.
bool PicksRows(std::string_view name, c10::ArrayRef<const c10::IValue> inputs);

/// The groups of a convolution with these arguments.
int64_t GroupsOf(OpKind kind, c10::ArrayRef<const c10::IValue> inputs);
bool IsTransposed(OpKind kind, c10::ArrayRef<const c10::IValue> inputs);
/// The windows of a convolution that is not transposed.
InputForm WindowsOf(c10::ArrayRef<const c10::IValue> inputs, at::IntArrayRef kernel);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_CAPTURE_WATCHED_OP_H_
