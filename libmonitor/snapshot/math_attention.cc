#include "snapshot/math_attention.h"

#include <cmath>
#include <optional>
#include <tuple>
#include <utility>

#include "ATen/ops/_scaled_dot_product_attention_math.h"
#include "ATen/ops/zeros_like.h"
#include "snapshot/own_draws.h"

namespace ptqwatch::internal {
namespace {

thread_local bool by_math = false;

// The position of an argument, or the number of arguments.
size_t Find(const c10::FunctionSchema& schema, std::string_view name) {
  const auto& arguments = schema.arguments();
  size_t i = 0;
  while (i < arguments.size() && arguments[i].name() != name) ++i;
  return i;
}

// As ATen does before it chooses a kernel.
at::Tensor AsFloat(const at::Tensor& mask, at::ScalarType dtype) {
  if (mask.scalar_type() != at::kBool) return mask;
  at::Tensor added = at::zeros_like(mask, mask.options().dtype(dtype));
  return added.masked_fill_(mask.logical_not(), -HUGE_VAL);
}

}  // namespace

MathAttention::MathAttention() : included_(kOwnDrawsKey), outer_(std::exchange(by_math, true)) {}

MathAttention::~MathAttention() { by_math = outer_; }

bool MathAttention::Replace(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                            torch::jit::Stack& stack) {
  if (!by_math || op.operator_name().name != kOperator) return false;
  // Autocast casts the inputs first, and calls the operator again.
  if (keys.has_any(c10::autocast_dispatch_keyset)) return false;
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size();
  const c10::ArrayRef<c10::IValue> given(stack.data() + stack.size() - count, count);
  const auto argument = [&](std::string_view name) {
    const size_t i = Find(schema, name);
    return i < count ? given[i] : c10::IValue();
  };
  const at::Tensor query = argument("query").toTensor();
  const double dropout = argument("dropout_p").toDouble();
  if (dropout > 0 || query.is_nested()) return false;
  const auto mask = argument("attn_mask").toOptional<at::Tensor>();
  std::optional<at::Tensor> added;
  if (mask && mask->defined()) added = AsFloat(*mask, query.scalar_type());
  const c10::IValue grouped = argument("enable_gqa");
  at::Tensor result = std::get<0>(at::_scaled_dot_product_attention_math(
      query, argument("key").toTensor(), argument("value").toTensor(), added, dropout,
      argument("is_causal").toBool(), std::nullopt, argument("scale").toOptional<double>(),
      grouped.isBool() && grouped.toBool()));
  torch::jit::drop(stack, count);
  stack.emplace_back(std::move(result));
  return true;
}

}  // namespace ptqwatch::internal
