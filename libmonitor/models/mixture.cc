#include "models/mixture.h"

#include <optional>
#include <tuple>

#include "ATen/TensorOperators.h"
#include "ATen/ops/bincount.h"
#include "ATen/ops/softmax.h"
#include "ATen/ops/topk.h"

namespace ptqwatch::internal {

Routing::Routing(const MixtureConfig& config, const at::Tensor& logits) {
  const bool of_all = config.router == RouterKind::kSoftmaxOfAll;
  const auto [values, experts] =
      at::topk(of_all ? logits.softmax(-1) : logits, config.chosen, /*dim=*/-1);
  at::Tensor weights = of_all ? values : values.softmax(-1);
  if (of_all && config.normalized) weights = weights / weights.sum(-1, /*keepdim=*/true);
  // First choices of all rows come before second ones, as transformers' eager experts take them.
  const at::Tensor choices = experts.t().reshape({-1});
  const at::Tensor order =
      std::get<1>(choices.sort(std::optional<bool>(true), /*dim=*/0, /*descending=*/false));
  rows_ = order.remainder(logits.size(0));
  weights_ = weights.t().reshape({-1}).index_select(0, order);
  const at::Tensor counts = at::bincount(choices, {}, config.experts);
  begin_.push_back(0);
  for (int64_t expert = 0; expert < config.experts; ++expert) {
    begin_.push_back(begin_.back() + counts.const_data_ptr<int64_t>()[expert]);
  }
}

}  // namespace ptqwatch::internal
