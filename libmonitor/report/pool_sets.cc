#include "report/pool_sets.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

// Sums over units of a numerator x and a denominator y.
struct RatioSums {
  double x = 0;
  double y = 0;
  double xx = 0;
  double xy = 0;
  double yy = 0;
};

// x / y with the standard error of a ratio estimator over n units: se^2 = n/(n-1) sum (x_i - r
// y_i)^2 / (sum y)^2 (Cochran, Sampling Techniques, eq. 6.13), the squares multiplied out.
void Estimate(const RatioSums& sums, double n, std::optional<double>& value,
              std::optional<double>& stderr_value) {
  const double ratio = sums.x / sums.y;
  if (!std::isfinite(ratio)) return;
  value = ratio;
  if (n < 2) return;
  const double squares = std::max(0.0, sums.xx - 2 * ratio * sums.xy + ratio * ratio * sums.yy);
  stderr_value = std::sqrt(n / (n - 1) * squares) / std::abs(sums.y);
}

}  // namespace

void PoolSets(PooledLoss& pooled) {
  pooled.status = ProbeStatus::kOk;
  pooled.status_detail.clear();
  pooled.delta_nats = pooled.delta_stderr_nats = std::nullopt;
  pooled.error_ratio = pooled.error_ratio_stderr = std::nullopt;
  pooled.probe_tokens = 0;
  RatioSums by_weight;
  RatioSums by_loss;
  int64_t units = 0;
  int64_t tokens = 0;
  for (const ProbeSet& set : pooled.sets) {
    if (set.status != ProbeStatus::kOk) {
      if (pooled.status == ProbeStatus::kOk) pooled.status = set.status;
      pooled.status_detail += StrCat(pooled.status_detail.empty() ? "" : "; ", "set ", set.set,
                                     ": ", set.status_detail);
      continue;
    }
    units += set.units;
    tokens += set.tokens;
    by_weight.x += set.change;
    by_weight.y += set.weight;
    by_weight.xx += set.change_squared;
    by_weight.xy += set.change_by_weight;
    by_weight.yy += set.weight_squared;
    by_loss.y += set.loss;
    by_loss.xy += set.change_by_loss;
    by_loss.yy += set.loss_squared;
  }
  if (pooled.status != ProbeStatus::kOk) return;
  by_loss.x = by_weight.x;
  by_loss.xx = by_weight.xx;
  pooled.probe_tokens = tokens;
  const double n = static_cast<double>(units);
  Estimate(by_weight, n, pooled.delta_nats, pooled.delta_stderr_nats);
  Estimate(by_loss, n, pooled.error_ratio, pooled.error_ratio_stderr);
}

}  // namespace ptqwatch::internal
