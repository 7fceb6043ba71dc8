#include <algorithm>

#include "ATen/core/Reduction.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/linear.h"
#include "models/attention.h"
#include "models/decoder.h"
#include "models/norms.h"

namespace ptqwatch::internal {
namespace {

constexpr int64_t kLogitsPerSlice = int64_t{1} << 24;

}  // namespace

at::Tensor DecoderHead::Logits(const at::Tensor& hidden) const {
  const at::Tensor logits =
      at::linear(Normalize(config_->norm, hidden, norm_, norm_bias_, config_->norm_eps), weight_);
  if (config_->logits_softcap) return SoftCap(logits, *config_->logits_softcap);
  return config_->logits_divisor == 1 ? logits : logits / config_->logits_divisor;
}

at::Tensor DecoderHead::TokenLosses(const at::Tensor& hidden, const at::Tensor& targets) const {
  const int64_t length = hidden.size(1);
  const int64_t step = std::max<int64_t>(1, kLogitsPerSlice / config_->vocabulary);
  std::vector<at::Tensor> slices;
  for (int64_t sequence = 0; sequence < hidden.size(0); ++sequence) {
    for (int64_t begin = 0; begin < length; begin += step) {
      const int64_t count = std::min(step, length - begin);
      const at::Tensor logits = Logits(hidden.select(0, sequence).narrow(0, begin, count));
      slices.push_back(at::cross_entropy_loss(
          logits, targets.select(0, sequence).narrow(0, begin, count), {}, at::Reduction::None));
    }
  }
  return at::cat(slices).view({hidden.size(0), length});
}

}  // namespace ptqwatch::internal
