#include "curvature/power_iteration.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status_macros.h"
#include "base/strings.h"
#include "curvature/orthogonalize.h"
#include "curvature/start_vector.h"

namespace ptqwatch::internal {
namespace {

// Minimum products before a warm start may stop: power iteration is slow to show an eigenvalue that
// has overtaken the tracked one.
constexpr int kMinWarmProducts = 10;

class Iteration {
 public:
  Iteration(SymmetricOperator& hessian, const EigenpairOptions& options,
            absl::Span<const Vector> deflated, const ExecutionContext& context)
      : context_(context),
        hessian_(hessian),
        space_(hessian.space()),
        options_(options),
        deflated_(deflated),
        start_vectors_(space_, deflated, context) {
    pair_.method = EigenvalueMethod::kPowerIteration;
  }

  absl::StatusOr<EigenpairSearch> Run(const WarmStart& start) {
    StartVector first = start_vectors_.First(start, SharesFor(start, options_));
    if (!first.vector.defined()) return NothingLeftError();
    iterate_ = std::move(first.vector);
    least_share_ = first.least_share;
    rest_ = space_.Zero();
    int min_products = first.biased ? kMinWarmProducts : 0;
    bool warm = first.warm;
    while (true) {
      PTQWATCH_RETURN_IF_ERROR(Multiply());
      if (pair_.products >= options_.max_products) {
        if (!AtWantedEnd() && shift_ == 0 && space_.dimension() > 1) return OtherEndError();
        break;
      }
      if (pair_.converged && AtWantedEnd() && pair_.products >= min_products) break;
      if (pair_.converged && !AtWantedEnd() && shift_ == 0 && pair_.value != 0) {
        // The other end of the spectrum has the larger magnitude. Without it the wanted end
        // dominates.
        if (!StartAgain()) break;
        shift_ = pair_.value;
        warm = false;
        min_products = 0;
      } else if (residual_ == 0 && pair_.value == shift_) {
        if (!StartAgain()) break;
      } else {
        Step();
      }
    }
    if (largest_product_ == 0 && deflated_.empty()) return ZeroOperatorError();
    EigenpairSearch search;
    pair_.bound = Bound();
    if (warm) pair_.start = StartOf(space_, start, iterate_);
    pair_.vector = iterate_.elements;
    search.next.vector = iterate_;
    if (residual_ > 0 && deflated_.empty()) MoveTo(search.krylov);
    search.pair = std::move(pair_);
    return search;
  }

 private:
  // Computes one product, and the value and residual of the iterate.
  absl::Status Multiply() {
    PTQWATCH_RETURN_IF_ERROR(hessian_.Apply(iterate_, rest_, context_));
    ++pair_.products;
    largest_product_ = std::max(largest_product_, space_.Norm(rest_));
    if (largest_product_ == 0 && deflated_.empty() && pair_.products >= kMaxZeroProducts) {
      return ZeroOperatorError();
    }
    double squares = 0;
    for (double along : Orthogonalize(space_, deflated_, rest_)) squares += along * along;
    pair_.value = Orthogonalize(space_, {&iterate_, 1}, rest_)[0];
    squares += space_.Dot(rest_, rest_);
    residual_ = std::sqrt(squares);
    pair_.residual_ratio = residual_ == 0 ? 0 : residual_ / std::abs(pair_.value);
    pair_.converged = residual_ <= options_.residual_ratio * std::abs(pair_.value);
    return absl::OkStatus();
  }

  bool AtWantedEnd() const {
    return options_.end == SpectrumEnd::kTop ? pair_.value > shift_ : pair_.value < shift_;
  }

  // iterate_ = (H - shift) iterate_, normalized.
  void Step() {
    log_growth_ += std::log(Growth());
    ++steps_;
    space_.Axpy(pair_.value - shift_, iterate_, rest_);
    std::swap(iterate_, rest_);
    space_.Scale(1 / space_.Norm(iterate_), iterate_);
  }

  // ||(H - shift) iterate_||
  double Growth() const { return std::hypot(pair_.value - shift_, residual_); }

  // For the start s of the k products since the shift was chosen, ||(H - shift)^k s|| is the
  // product of the growths. It is at least |x - shift|^k times the component of s along an
  // eigenvector of the eigenvalue x.
  double Bound() const {
    const double sign = options_.end == SpectrumEnd::kTop ? 1 : -1;
    const double distance =
        std::exp((log_growth_ + std::log(Growth()) - 0.5 * std::log(least_share_)) / (steps_ + 1));
    return sign * std::max(sign * pair_.value, sign * shift_ + distance);
  }

  // Switches to a random iterate orthogonal to this one. Returns false if the space has none.
  bool StartAgain() {
    Vector other = start_vectors_.Next({&iterate_, 1});
    if (!other.defined()) return false;
    iterate_ = std::move(other);
    least_share_ = start_vectors_.LeastShare(1);
    log_growth_ = 0;
    steps_ = 0;
    return true;
  }

  absl::Status OtherEndError() const {
    return absl::FailedPreconditionError(
        StrCat("power iteration found only the other end of the spectrum in ", pair_.products,
               " products; with more memory the search would use Lanczos"));
  }

  void MoveTo(KrylovSpace& krylov) {
    krylov.matrix = {pair_.value, residual_, residual_, 0};
    space_.Scale(1 / residual_, rest_);
    krylov.basis = {iterate_, std::move(rest_)};
    krylov.projected = 1;
  }

  const ExecutionContext& context_;
  SymmetricOperator& hessian_;
  const VectorSpace& space_;
  const EigenpairOptions& options_;
  const absl::Span<const Vector> deflated_;
  StartVectors start_vectors_;

  Vector iterate_;  // of norm 1
  Vector rest_;     // the product's part outside the deflated vectors and the iterate
  double shift_ = 0;
  double residual_ = 0;
  double least_share_ = 0;  // of the wanted eigenvector in the start
  double log_growth_ = 0;
  int steps_ = 0;
  double largest_product_ = 0;
  HessianEigenpair pair_;
};

}  // namespace

absl::StatusOr<EigenpairSearch> PowerIteration(SymmetricOperator& hessian, const WarmStart& start,
                                               const EigenpairOptions& options,
                                               absl::Span<const Vector> deflated,
                                               const ExecutionContext& context) {
  return Iteration(hessian, options, deflated, context).Run(start);
}

}  // namespace ptqwatch::internal
