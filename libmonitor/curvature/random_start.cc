#include "curvature/random_start.h"

#include <cmath>
#include <utility>

#include "absl/strings/cord.h"

namespace ptqwatch::internal {
namespace {

// A unit vector of which less than this is outside of the others has nothing to add.
constexpr double kParallel = 1e-4;
constexpr int kMostDraws = 64;
constexpr char kVectorBudget[] = "ptqwatch.vector_budget";
// A start with less than this (squared cosine) of the vector found was of no use.
constexpr double kStale = 0.05;

}  // namespace

std::vector<double> Orthogonalize(const VectorSpace& space, absl::Span<const Vector> basis,
                                  Vector& vector) {
  std::vector<double> coefficients(basis.size());
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t i = 0; i < basis.size(); ++i) {
      const double share = space.Dot(basis[i], vector);
      space.Axpy(-share, basis[i], vector);
      coefficients[i] += share;
    }
  }
  return coefficients;
}

Vector RandomStart::Usable(const Vector& x, absl::Span<const Vector> other) const {
  if (!x.defined() || x.elements.numel() != space_.dimension()) return {};
  const double norm = space_.Norm(x);
  if (!(norm > 0 && std::isfinite(norm))) return {};
  Vector usable = space_.Copy(x);
  space_.Scale(1 / norm, usable);
  Orthogonalize(space_, deflated_, usable);
  Orthogonalize(space_, other, usable);
  const double left = space_.Norm(usable);
  if (left <= kParallel) return {};
  space_.Scale(1 / left, usable);
  return usable;
}

Vector RandomStart::Next(absl::Span<const Vector> basis) {
  Vector vector = space_.Zero();
  for (int i = 0; i < kMostDraws; ++i) {
    space_.FillRademacher(seeds_.Seed("lanczos", drawn_++), vector);
    space_.Scale(1 / space_.Norm(vector), vector);
    Orthogonalize(space_, deflated_, vector);
    Orthogonalize(space_, basis, vector);
    const double left = space_.Norm(vector);
    if (left <= kParallel) continue;
    space_.Scale(1 / left, vector);
    return vector;
  }
  return {};
}

Vector RandomStart::First(const WarmStart& start, bool& warm, bool& biased) {
  Vector first = Usable(start.vector, {});
  warm = first.defined();
  // Against the first alone: where the three are not orthogonal the shares are only near.
  Vector scout = Usable(start.scout, warm ? absl::MakeConstSpan(&first, 1) : absl::Span<Vector>());
  if (!warm) first = std::exchange(scout, {});
  biased = first.defined();
  if (!biased) return Next({});
  const Vector fresh = Next({&first, 1});
  double rest = 1;
  if (scout.defined()) rest -= shares_.scout;
  if (fresh.defined()) rest -= shares_.random;
  space_.Scale(std::sqrt(rest), first);
  if (scout.defined()) space_.Axpy(std::sqrt(shares_.scout), scout, first);
  if (fresh.defined()) space_.Axpy(std::sqrt(shares_.random), fresh, first);
  space_.Scale(1 / space_.Norm(first), first);
  return first;
}

absl::Status ZeroHessianError() {
  return absl::FailedPreconditionError(
      "every product with the Hessian is zero: the loss does not depend on the parameters in "
      "scope, "
      "or is linear in them");
}

absl::Status OfVectorBudget(absl::Status status) {
  status.SetPayload(kVectorBudget, absl::Cord());
  return status;
}

bool IsOfVectorBudget(const absl::Status& status) {
  return status.GetPayload(kVectorBudget).has_value();
}

EigenvalueStart StartOf(const VectorSpace& space, const WarmStart& start, const Vector& found) {
  const double cosine = space.Dot(start.vector, found) / space.Norm(start.vector);
  return cosine * cosine < kStale ? EigenvalueStart::kRestarted : EigenvalueStart::kWarm;
}

}  // namespace ptqwatch::internal
