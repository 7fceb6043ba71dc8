#ifndef PTQWATCH_MODELS_ATTENTION_H_
#define PTQWATCH_MODELS_ATTENTION_H_

#include <cstdint>
#include <optional>

#include "ATen/core/Tensor.h"

namespace ptqwatch::internal {

/// How queries and keys become the weights of values.
struct ScoreConfig {
  double scale = 1;    ///< of products of queries and keys
  int64_t window = 0;  ///< a token sees this many positions up to its own; 0: all
  std::optional<double> softcap = std::nullopt;  ///< of the scaled products
  /// [heads]: the score of a place without a value, which every token sees; or undefined.
  at::Tensor sinks = {};
};

/// c tanh(x / c). Differentiable twice. May throw.
at::Tensor SoftCap(const at::Tensor& x, double c);

/// 4 MB of scores, over which five passes go, stay in a core's share of the cache.
inline constexpr int64_t kMostScores = int64_t{1} << 20;

/// Causal attention of queries [B, heads, T, head_dim] to keys and values [B, key heads, T,
/// head_dim], where key heads divides heads: [B, T, heads * head_dim].
///
/// Computes the scores of at most kMostScores pairs of tokens at once (of one head, if T > 1024),
/// so memory does not grow with B and heads; the result does not depend on that. Differentiable
/// twice; with a graph, all probabilities stay in memory. May throw.
at::Tensor CausalAttention(const at::Tensor& queries, const at::Tensor& keys,
                           const at::Tensor& values, const ScoreConfig& scores);

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MODELS_ATTENTION_H_
