#include "snapshot/loss_difference.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace ptqwatch::internal {

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  const at::Tensor x = a.detach().cpu().contiguous();
  const at::Tensor y = b.detach().cpu().contiguous();
  return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
         (x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

double LossDifference(const at::Tensor& a, const at::Tensor& b) {
  if (SameBits(a, b)) return 0;
  constexpr double kOther = std::numeric_limits<double>::infinity();
  if (!a.defined() || !b.defined() || a.sizes() != b.sizes() ||
      a.scalar_type() != b.scalar_type()) {
    return kOther;
  }
  const at::Tensor x = a.detach().cpu().to(at::kDouble).contiguous();
  const at::Tensor y = b.detach().cpu().to(at::kDouble).contiguous();
  const double* const from = x.const_data_ptr<double>();
  const double* const to = y.const_data_ptr<double>();
  double largest = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    if (std::isnan(from[i]) && std::isnan(to[i])) continue;
    if (from[i] == to[i]) continue;
    if (!std::isfinite(from[i]) || !std::isfinite(to[i])) return kOther;
    largest = std::max(largest, std::abs(from[i] - to[i]) / std::max(1.0, std::abs(from[i])));
  }
  return largest;
}

}  // namespace ptqwatch::internal
