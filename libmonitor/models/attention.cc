#include "models/attention.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/full.h"

namespace ptqwatch::internal {
namespace {

// The mask added to scores [T, T]: the lowest float where a token may not look.
at::Tensor CausalMask(int64_t tokens, int64_t window) {
  at::NoGradGuard no_grad;
  const at::Tensor hidden =
      at::full({tokens, tokens}, std::numeric_limits<float>::lowest(), at::kFloat);
  const at::Tensor future = hidden.triu(1);
  return window > 0 && window < tokens ? future + hidden.tril(-window) : future;
}

// [B, key heads, T, head_dim] -> [B, heads, T, head_dim].
at::Tensor ForEachHead(const at::Tensor& keys, int64_t heads) {
  const int64_t batch = keys.size(0), key_heads = keys.size(1), tokens = keys.size(2);
  if (key_heads == heads) return keys;
  return keys.unsqueeze(2)
      .expand({batch, key_heads, heads / key_heads, tokens, keys.size(3)})
      .reshape({batch, heads, tokens, keys.size(3)});
}

// softmax over the scores [B, heads, T, T] and the heads' sinks [heads], without those of the
// sinks.
at::Tensor SoftmaxWithSinks(const at::Tensor& scores, const at::Tensor& sinks) {
  const int64_t tokens = scores.size(3);
  const at::Tensor column =
      sinks.reshape({1, -1, 1, 1}).expand({scores.size(0), -1, scores.size(2), -1});
  const at::Tensor all = at::cat({scores, column}, -1);
  const at::Tensor greatest = std::get<0>(all.max(-1, /*keepdim=*/true));
  return (all - greatest).softmax(-1).narrow(-1, 0, tokens);
}

}  // namespace

at::Tensor SoftCap(const at::Tensor& x, double c) { return (x / c).tanh() * c; }

at::Tensor CausalAttention(const at::Tensor& queries, const at::Tensor& keys,
                           const at::Tensor& values, const ScoreConfig& config) {
  const int64_t batch = queries.size(0), heads = queries.size(1), tokens = queries.size(2);
  const at::Tensor k = ForEachHead(keys, heads).transpose(2, 3);
  const at::Tensor v = ForEachHead(values, heads);
  const at::Tensor mask = CausalMask(tokens, config.window);
  const int64_t pieces = std::max<int64_t>(1, kMostScores / (tokens * tokens));  // heads
  const int64_t head_step = std::min(pieces, heads);
  const int64_t batch_step = std::max<int64_t>(1, pieces / heads);
  std::vector<at::Tensor> sequences;
  for (int64_t sequence = 0; sequence < batch; sequence += batch_step) {
    std::vector<at::Tensor> slices;
    for (int64_t head = 0; head < heads; head += head_step) {
      const auto slice = [&](const at::Tensor& x) {
        return x.narrow(0, sequence, std::min(batch_step, batch - sequence))
            .narrow(1, head, std::min(head_step, heads - head));
      };
      // In place: these are passes over memory.
      at::Tensor scores = slice(queries).matmul(slice(k)).mul_(config.scale);
      if (config.softcap) scores = SoftCap(scores, *config.softcap);
      scores.add_(mask);
      const at::Tensor shares =
          config.sinks.defined()
              ? SoftmaxWithSinks(scores, config.sinks.narrow(0, head, scores.size(1)))
              : scores.softmax(-1);
      slices.push_back(shares.matmul(slice(v)));
    }
    sequences.push_back(at::cat(slices, 1));
  }
  return at::cat(sequences, 0).transpose(1, 2).reshape({batch, tokens, heads * v.size(3)});
}

}  // namespace ptqwatch::internal
