#ifndef PTQWATCH_SNAPSHOT_MATH_ATTENTION_H_
#define PTQWATCH_SNAPSHOT_MATH_ATTENTION_H_

#include <string_view>

#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/core/stack.h"
#include "c10/core/DispatchKeySet.h"
#include "c10/core/impl/LocalDispatchKeySet.h"

namespace ptqwatch::internal {

/// During its lifetime, aten::scaled_dot_product_attention on this thread is computed by its
/// mathematical form, which can be differentiated twice: the fused kernels, on every device, have
/// no second derivative. Values differ from a fused kernel's by rounding; memory grows with the
/// square of the sequence's length. Attention with dropout and nested tensors stay as they are.
///
/// Instances nest and must be destroyed on the thread that made them. Needs OwnDraws::Available().
class MathAttention {
 public:
  MathAttention();
  ~MathAttention();
  MathAttention(const MathAttention&) = delete;
  MathAttention& operator=(const MathAttention&) = delete;

  static constexpr std::string_view kOperator = "aten::scaled_dot_product_attention";
  /// For the kernel that is registered for kOperator: computes it on `stack` and returns true, or
  /// leaves it to the others.
  static bool Replace(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                      torch::jit::Stack& stack);

 private:
  c10::impl::IncludeDispatchKeyGuard included_;
  const bool outer_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_SNAPSHOT_MATH_ATTENTION_H_
