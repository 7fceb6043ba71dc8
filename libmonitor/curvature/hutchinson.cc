#include "curvature/hutchinson.h"

#include <cmath>

namespace ptqwatch::internal {
namespace {

// Running mean and standard error (Welford 1962).
class Mean {
 public:
  void Add(double x) {
    ++count_;
    const double delta = x - mean_;
    mean_ += delta / count_;
    squares_ += delta * (x - mean_);
  }
  Estimate Get() const {
    return {mean_, count_ < 2 ? 0 : std::sqrt(squares_ / (count_ - 1) / count_)};
  }

 private:
  int count_ = 0;
  double mean_ = 0;
  double squares_ = 0;
};

}  // namespace

absl::StatusOr<TraceEstimate> EstimateTrace(ExecutionContext& context, SymmetricOperator& hessian,
                                            absl::Span<const double> part_weights,
                                            const HutchinsonOptions& options) {
  const VectorSpace& space = hessian.space();
  Vector z = space.Zero();
  Vector hz = space.Zero();
  Mean whole;
  Mean weighted;
  std::vector<Mean> parts(space.parts().size());
  TraceEstimate estimate;
  while (estimate.probes < options.max_probes) {
    space.FillRademacher(context.seeds.Seed("hutchinson", static_cast<uint64_t>(estimate.probes)),
                         z);
    if (absl::Status status = hessian.Apply(context, z, hz); !status.ok()) return status;
    ++estimate.probes;
    const std::vector<double> dots = space.DotByPart(z, hz);
    double sum = 0;
    double weighted_sum = 0;
    for (size_t i = 0; i < dots.size(); ++i) {
      parts[i].Add(dots[i]);
      sum += dots[i];
      weighted_sum += part_weights[i] * dots[i];
    }
    whole.Add(sum);
    weighted.Add(weighted_sum);
    estimate.trace = whole.Get();
    if (estimate.probes >= options.min_probes &&
        estimate.trace.stderr_value <= options.relative_stderr * std::abs(estimate.trace.value)) {
      break;
    }
  }
  estimate.weighted = weighted.Get();
  for (const Mean& part : parts) estimate.by_part.push_back(part.Get());
  return estimate;
}

}  // namespace ptqwatch::internal
