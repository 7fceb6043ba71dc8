#include "curvature/hutchinson.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/reservation.h"
#include "base/status_macros.h"
#include "base/student_quantile.h"
#include "report/layer_groups.h"

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
  int count() const { return count_; }
  double value() const { return mean_; }
  double StandardError() const {
    return count_ < 2 ? 0 : std::sqrt(squares_ / (count_ - 1) / count_);
  }
  // Half the width of the 95 % confidence interval, times `widening`.
  double Interval(double widening) const {
    return count_ < 2 ? 0 : widening * StudentQuantile(count_ - 1) * StandardError();
  }

 private:
  int count_ = 0;
  double mean_ = 0;
  double squares_ = 0;
};

// A = Q M Q' - level P, which is subtracted from H. The level makes H - A similar on the known
// space and on the rest: a multiple of the identity, which sign vectors measure exactly, remains
// one.
class KnownPart {
 public:
  KnownPart(const VectorSpace& space, const KrylovSpace& known) : space_(space), known_(known) {
    traces_.assign(space.pieces().size(), 0);
    for (size_t i = 0; i < size(); ++i) {
      for (size_t j = 0; j <= i; ++j) {
        const double factor = (i == j ? 1 : 2) * At(i, j);
        if (factor == 0) continue;
        const std::vector<double> dots = space.DotByPiece(known.basis[i], known.basis[j]);
        for (size_t part = 0; part < dots.size(); ++part) traces_[part] += factor * dots[part];
      }
    }
  }

  // The trace of each part's diagonal block.
  const std::vector<double>& traces() const { return traces_; }

  // product -= A z
  void Subtract(const Vector& z, Vector& product) const {
    const std::vector<double> shares = space_.Dots(known_.basis, z);
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

// The traces of sets of parts, by the name of the set.
class BlockSums {
 public:
  void Include(std::string name, std::vector<size_t> parts) {
    names_.push_back(std::move(name));
    parts_.push_back(std::move(parts));
    sums_.emplace_back();
  }
  // Adds one probe vector's values of all parts.
  void Add(const std::vector<double>& values) {
    for (size_t i = 0; i < sums_.size(); ++i) {
      double sum = 0;
      for (const size_t part : parts_[i]) sum += values[part];
      sums_[i].Add(sum);
    }
  }
  std::vector<BlockTrace> Traces() const {
    std::vector<BlockTrace> traces;
    for (size_t i = 0; i < sums_.size(); ++i) {
      traces.push_back({names_[i], sums_[i].value(), sums_[i].StandardError()});
    }
    return traces;
  }

 private:
  std::vector<std::string> names_;
  std::vector<std::vector<size_t>> parts_;
  std::vector<Mean> sums_;
};

// The estimates for the whole, the weighted sum and blocks, from the same products.
class TraceSums {
 public:
  TraceSums(const VectorSpace& space, absl::Span<const double> part_weights)
      : part_weights_(part_weights) {
    const std::vector<VectorSpace::Part>& parts = space.pieces();
    for (size_t i = 0; i < parts.size(); ++i) by_part_.Include(parts[i].name, {i});
    for (size_t begin = 0, end = 0; begin < parts.size(); begin = end) {
      const std::string layer = LayerOf(parts[begin].name);
      std::vector<size_t> members;
      while (end < parts.size() && LayerOf(parts[end].name) == layer) members.push_back(end++);
      by_layer_.Include(layer, std::move(members));
    }
    const auto name_of = [&](size_t i) { return std::string_view(parts[i].name); };
    for (GroupedLayers& group : GroupLayers(parts.size(), name_of)) {
      if (group.stacked()) by_stack_.Include(std::move(group.name), std::move(group.members));
    }
  }

  // Adds one probe vector's values of all parts.
  void Add(const std::vector<double>& parts) {
    double sum = 0;
    double weighted_sum = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      sum += parts[i];
      weighted_sum += part_weights_[i] * parts[i];
    }
    whole_.Add(sum);
    weighted_.Add(weighted_sum);
    for (BlockSums* blocks : {&by_part_, &by_layer_, &by_stack_}) blocks->Add(parts);
  }

  const Mean& whole() const { return whole_; }

  void Fill(HessianTrace& trace) const {
    trace.trace = whole_.value();
    trace.trace_stderr = whole_.StandardError();
    trace.weighted_trace = weighted_.value();
    trace.weighted_trace_stderr = weighted_.StandardError();
    trace.parameters = by_part_.Traces();
    trace.layers = by_layer_.Traces();
    trace.stacks = by_stack_.Traces();
  }

 private:
  const absl::Span<const double> part_weights_;
  Mean whole_;
  Mean weighted_;
  BlockSums by_part_;
  BlockSums by_layer_;
  BlockSums by_stack_;
};

// The standard error of a trace across the batches whose sum is H.
class BatchSpread {
 public:
  explicit BatchSpread(std::vector<double> shares)
      : shares_(std::move(shares)), by_batch_(shares_.size()) {}

  // Adds z'H_b z of every batch for one probe vector.
  void Add(const std::vector<double>& along) {
    if (shares_.size() < 2 || along.size() != shares_.size()) return;
    const double whole = std::accumulate(along.begin(), along.end(), 0.0);
    // Per unit of data, so that a smaller last batch has the same expectation as the others.
    for (size_t b = 0; b < along.size(); ++b) by_batch_[b].Add(along[b] / shares_[b] - whole);
  }

  // With weights s_b that sum up to 1 and batches of variance sigma^2 / s_b, the variance of the
  // weighted mean is sigma^2, and the mean of sum_b s_b (t_b - t)^2 is (n - 1) sigma^2.
  std::optional<double> StandardError() const {
    if (shares_.size() < 2 || by_batch_[0].count() < 2) return std::nullopt;
    double squares = 0;
    for (size_t b = 0; b < shares_.size(); ++b) {
      const double error = by_batch_[b].StandardError();
      squares += shares_[b] * (by_batch_[b].value() * by_batch_[b].value() - error * error);
    }
    // Else the probe vectors explain all of the difference, so that it is not resolved.
    if (!(squares > 0)) return std::nullopt;
    return std::sqrt(squares / static_cast<double>(shares_.size() - 1));
  }

 private:
  const std::vector<double> shares_;
  std::vector<Mean> by_batch_;  // minus the whole
};

}  // namespace

absl::StatusOr<HessianTrace> EstimateTrace(SymmetricOperator& hessian,
                                           absl::Span<const double> part_weights,
                                           const KrylovSpace& known,
                                           const HutchinsonOptions& options,
                                           const ExecutionContext& context) {
  const VectorSpace& space = hessian.space();
  Reservation reservation(context.bytes);
  PTQWATCH_RETURN_IF_ERROR(reservation.Take(2 * space.bytes(), "the trace's probe vectors"));
  const auto begin = context.clock->Monotonic();
  const KnownPart known_part(space, known);
  TraceSums sums(space, part_weights);
  Vector z = space.Zero();
  Vector hz = space.Zero();
  // If the estimate decides when to stop, its interval is widened (see the header).
  const bool adaptive = options.max_probes > options.min_probes;
  BatchSpread batches(hessian.shares());
  std::vector<double> along;
  HessianTrace trace;
  bool zero = true;
  while (trace.probes < options.max_probes) {
    space.FillRademacher(context.seeds.Seed("hutchinson", static_cast<uint64_t>(trace.probes)), z);
    PTQWATCH_RETURN_IF_ERROR(hessian.ApplyByShare(z, hz, along, context));
    batches.Add(along);
    ++trace.probes;
    zero = zero && space.Norm(hz) == 0;
    if (zero && trace.probes >= kMaxZeroProducts) return ZeroOperatorError();
    known_part.Subtract(z, hz);
    std::vector<double> by_part = space.DotByPiece(z, hz);
    for (size_t i = 0; i < by_part.size(); ++i) by_part[i] += known_part.traces()[i];
    sums.Add(by_part);
    trace.trace_interval = sums.whole().Interval(adaptive ? 1 + 1.0 / trace.probes : 1);
    trace.converged = trace.trace_interval <=
                      kNormalQuantile * options.relative_stderr * std::abs(sums.whole().value());
    if (trace.probes >= options.min_probes && trace.converged) break;
  }
  trace.products = trace.probes;
  trace.trace_batch_stderr = batches.StandardError();
  sums.Fill(trace);
  trace.seconds = std::chrono::duration<double>(context.clock->Monotonic() - begin).count();
  return trace;
}

}  // namespace ptqwatch::internal
