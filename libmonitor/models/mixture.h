#ifndef PTQWATCH_MODELS_MIXTURE_H_
#define PTQWATCH_MODELS_MIXTURE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "models/model_config.h"

namespace ptqwatch::internal {

/// Which experts of a mixture see which rows of its input, and how their outputs are weighed.
class Routing {
 public:
  /// By products of the rows and the router's weights, `logits` [rows, experts]. At a tie the
  /// experts are those of at::topk. Weights are differentiable twice, with the choice held fixed.
  /// May throw.
  Routing(const MixtureConfig& config, const at::Tensor& logits);

  /// The rows of an expert, int64 [n]: those of which it is the first choice, then the second, ...
  /// May be none.
  at::Tensor RowsOf(int64_t expert) const { return Part(rows_, expert); }
  /// The factors of the expert's outputs for these rows, [n, 1].
  at::Tensor WeightsOf(int64_t expert) const { return Part(weights_, expert).unsqueeze(1); }

 private:
  at::Tensor Part(const at::Tensor& sorted, int64_t expert) const {
    const auto e = static_cast<size_t>(expert);
    return sorted.narrow(0, begin_[e], begin_[e + 1] - begin_[e]);
  }

  // These list all choices, sorted by expert.
  at::Tensor rows_;
  at::Tensor weights_;
  std::vector<int64_t> begin_;  // of each expert's, and the end
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_MODELS_MIXTURE_H_
