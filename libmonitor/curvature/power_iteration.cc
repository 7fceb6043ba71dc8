#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/reservation.h"
#include "base/strings.h"
#include "curvature/eigenpair.h"
#include "curvature/random_start.h"

namespace ptqwatch::internal {
namespace {

constexpr int64_t kVectors = 3;
// A warm start is believed only then: power iteration is slow to see what has overtaken it.
constexpr int kEnoughProducts = 10;

}  // namespace

absl::StatusOr<Eigenpair> PowerEigenpair(SymmetricOperator& hessian, const WarmStart& start,
                                         const EigenpairOptions& options,
                                         absl::Span<const Vector> deflated, KrylovSpace* krylov,
                                         const ExecutionContext& context) {
  const VectorSpace& space = hessian.space();
  const int64_t needed = kVectors * space.bytes();
  if (needed > options.max_bytes) {
    return OfVectorBudget(absl::ResourceExhaustedError(
        StrCat("the search for an eigenvalue needs ", needed, " bytes for ", kVectors,
               " vectors, the limit is ", options.max_bytes)));
  }
  Reservation reservation(context.bytes);
  if (absl::Status status = reservation.Take(needed, "the search for an eigenvalue");
      !status.ok()) {
    return OfVectorBudget(status);
  }
  const auto begin = context.clock->Monotonic();
  RandomStart random(space, deflated, SharesFor(options), context);
  bool warm = false;
  bool biased = false;
  Vector v = random.First(start, warm, biased);
  if (!v.defined()) {
    return absl::FailedPreconditionError("no eigenvalue is left in the complement of those found");
  }
  Vector rest = space.Zero();
  Eigenpair pair;
  pair.method = EigenvalueMethod::kPowerIteration;
  double shift = 0;
  double largest_product = 0;
  double residual = 0;
  while (true) {
    if (absl::Status status = hessian.Apply(v, rest, context); !status.ok()) return status;
    ++pair.products;
    largest_product = std::max(largest_product, space.Norm(rest));
    if (largest_product == 0 && deflated.empty() && pair.products >= kZeroProducts) {
      return ZeroHessianError();
    }
    double squares = 0;
    for (double leak : Orthogonalize(space, deflated, rest)) squares += leak * leak;
    pair.value = Orthogonalize(space, {&v, 1}, rest)[0];
    squares += space.Dot(rest, rest);
    residual = std::sqrt(squares);
    pair.residual_ratio = residual == 0 ? 0 : residual / std::abs(pair.value);
    pair.converged = residual <= options.residual_ratio * std::abs(pair.value);
    const bool wanted = options.end == SpectrumEnd::kTop ? pair.value > shift : pair.value < shift;
    const bool believed = !biased || pair.products >= kEnoughProducts;
    if (pair.products >= options.max_products) {
      if (!wanted && shift == 0 && space.dimension() > 1) {
        return absl::FailedPreconditionError(
            StrCat("power iteration found only the other end of the spectrum in ", pair.products,
                   " products; with more memory it would be Lanczos"));
      }
      break;
    }
    if (pair.converged && wanted && believed) break;

    Vector other;
    const bool other_end = pair.converged && !wanted && shift == 0 && pair.value != 0;
    const bool annihilated = residual == 0 && pair.value == shift;
    if (other_end || annihilated) {
      other = random.Next({&v, 1});
      if (!other.defined()) break;  // all there is
    }
    if (other_end) {
      // The other end is the larger one; with that subtracted, the wanted end is.
      shift = pair.value;
      warm = false;
      biased = false;
      v = std::move(other);
    } else if (annihilated) {
      v = std::move(other);
    } else {
      space.Axpy(pair.value - shift, v, rest);
      std::swap(v, rest);
      space.Scale(1 / space.Norm(v), v);
    }
  }
  if (largest_product == 0 && deflated.empty()) return ZeroHessianError();
  pair.vector = std::move(v);
  if (warm) pair.start = StartOf(space, start, pair.vector);
  if (krylov != nullptr && residual > 0 && deflated.empty()) {
    krylov->matrix = {pair.value, residual, residual, 0};
    space.Scale(1 / residual, rest);
    krylov->basis = {pair.vector, std::move(rest)};
    krylov->projected = 1;
  }
  pair.seconds = std::chrono::duration<double>(context.clock->Monotonic() - begin).count();
  return pair;
}

}  // namespace ptqwatch::internal
