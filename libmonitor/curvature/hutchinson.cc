#include "curvature/hutchinson.h"

#include <chrono>
#include <cmath>
#include <string_view>

#include "base/reservation.h"
#include "curvature/random_start.h"

namespace ptqwatch::internal {
namespace {

constexpr double kNormalQuantile = 1.959964;

// Running mean and standard error (Welford 1962).
class Mean {
 public:
  void Add(double x) {
    ++count_;
    const double delta = x - mean_;
    mean_ += delta / count_;
    squares_ += delta * (x - mean_);
  }
  Estimate Get(double widening) const {
    if (count_ < 2) return {mean_, 0, 0};
    const double error = std::sqrt(squares_ / (count_ - 1) / count_);
    return {mean_, error, widening * StudentQuantile(count_ - 1) * error};
  }

 private:
  int count_ = 0;
  double mean_ = 0;
  double squares_ = 0;
};

// A = Q M Q' - level P, which is taken out of H. With the level, what is left of the space is like
// the rest of H there, not a hole in it: a multiple of the identity, which a sign vector measures
// without error, stays one.
class KnownPart {
 public:
  KnownPart(const VectorSpace& space, const KrylovSpace& known) : space_(space), known_(known) {
    traces_.assign(space.parts().size(), 0);
    for (size_t i = 0; i < size(); ++i) {
      for (size_t j = 0; j <= i; ++j) {
        const double factor = (i == j ? 1 : 2) * At(i, j);
        if (factor == 0) continue;
        const std::vector<double> dots = space.DotByPart(known.basis[i], known.basis[j]);
        for (size_t part = 0; part < dots.size(); ++part) traces_[part] += factor * dots[part];
      }
    }
  }

  // Of the diagonal block of each part.
  const std::vector<double>& traces() const { return traces_; }

  // product -= A z
  void Subtract(const Vector& z, Vector& product) const {
    std::vector<double> shares;
    for (const Vector& q : known_.basis) shares.push_back(space_.Dot(q, z));
    for (size_t i = 0; i < size(); ++i) {
      double weight = 0;
      for (size_t j = 0; j < size(); ++j) weight += At(i, j) * shares[j];
      space_.Axpy(-weight, known_.basis[i], product);
    }
  }

 private:
  size_t size() const { return known_.basis.size(); }
  double At(size_t i, size_t j) const {
    const double entry = known_.matrix[i * size() + j];
    return i == j && i < known_.projected ? entry - known_.level : entry;
  }
  const VectorSpace& space_;
  const KrylovSpace& known_;
  std::vector<double> traces_;
};

// "blocks.0.norm.weight" -> "blocks.0.norm"
std::string LayerOf(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

}  // namespace

double StudentQuantile(int degrees_of_freedom) {
  // Cornish-Fisher (Abramowitz and Stegun 26.7.5).
  const double n = degrees_of_freedom;
  const double z = kNormalQuantile;
  const double z3 = z * z * z;
  const double z5 = z3 * z * z;
  const double z7 = z5 * z * z;
  return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * n * n * n);
}

absl::StatusOr<TraceEstimate> EstimateTrace(SymmetricOperator& hessian,
                                            absl::Span<const double> part_weights,
                                            const KrylovSpace& known,
                                            const HutchinsonOptions& options,
                                            const ExecutionContext& context) {
  const VectorSpace& space = hessian.space();
  Reservation reservation(context.bytes);
  if (absl::Status status = reservation.Take(2 * space.bytes(), "the trace's probe vectors");
      !status.ok()) {
    return OfVectorBudget(status);
  }
  const auto begin = context.clock->Monotonic();
  const KnownPart known_part(space, known);
  const std::vector<VectorSpace::Part>& parts = space.parts();
  std::vector<size_t> layer_of;
  TraceEstimate estimate;
  for (const VectorSpace::Part& part : parts) {
    const std::string layer = LayerOf(part.name);
    if (estimate.by_layer.empty() || estimate.by_layer.back().first != layer) {
      estimate.by_layer.emplace_back(layer, Estimate());
    }
    layer_of.push_back(estimate.by_layer.size() - 1);
  }
  Vector z = space.Zero();
  Vector hz = space.Zero();
  Mean whole;
  Mean weighted;
  std::vector<Mean> by_part(parts.size());
  std::vector<Mean> by_layer(estimate.by_layer.size());
  const bool adaptive = options.max_probes > options.min_probes;
  double widening = 1;
  bool zero = true;
  while (estimate.probes < options.max_probes) {
    space.FillRademacher(context.seeds.Seed("hutchinson", static_cast<uint64_t>(estimate.probes)),
                         z);
    if (absl::Status status = hessian.Apply(z, hz, context); !status.ok()) return status;
    ++estimate.probes;
    zero = zero && space.Norm(hz) == 0;
    if (zero && estimate.probes >= kZeroProducts) return ZeroHessianError();
    known_part.Subtract(z, hz);
    const std::vector<double> dots = space.DotByPart(z, hz);
    double sum = 0;
    double weighted_sum = 0;
    std::vector<double> layer_sums(by_layer.size());
    for (size_t i = 0; i < dots.size(); ++i) {
      const double part = dots[i] + known_part.traces()[i];
      by_part[i].Add(part);
      sum += part;
      weighted_sum += part_weights[i] * part;
      layer_sums[layer_of[i]] += part;
    }
    whole.Add(sum);
    weighted.Add(weighted_sum);
    for (size_t i = 0; i < layer_sums.size(); ++i) by_layer[i].Add(layer_sums[i]);
    if (adaptive) widening = 1 + 1.0 / estimate.probes;
    estimate.trace = whole.Get(widening);
    estimate.converged = estimate.trace.interval <=
                         kNormalQuantile * options.relative_stderr * std::abs(estimate.trace.value);
    if (estimate.probes >= options.min_probes && estimate.converged) break;
  }
  estimate.weighted = weighted.Get(widening);
  for (const Mean& part : by_part) estimate.by_part.push_back(part.Get(widening));
  for (size_t i = 0; i < by_layer.size(); ++i) {
    estimate.by_layer[i].second = by_layer[i].Get(widening);
  }
  estimate.seconds = std::chrono::duration<double>(context.clock->Monotonic() - begin).count();
  return estimate;
}

}  // namespace ptqwatch::internal
