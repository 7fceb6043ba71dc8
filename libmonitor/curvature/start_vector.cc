#include "curvature/start_vector.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "curvature/orthogonalize.h"

namespace ptqwatch::internal {
namespace {

// A unit vector with a smaller part outside the others adds nothing to them.
constexpr double kParallel = 1e-4;
constexpr int kMaxDraws = 64;
// A random unit vector's component along a fixed direction in n dimensions is nearly normal with
// the variance 1 / n. With a probability of 97.5 % its square is at least this over n (Kuczynski
// and Wozniakowski 1992). Adding a vector that does not depend on the random one makes a small
// component less probable, not more (Anderson 1955).
constexpr double kLeastRandomSquare = 9.8e-4;
// The gradient lies mostly along the top eigenvectors, in any dimension. Along training runs of a
// small GPT the share of a start that contains it was at least this in 99 % of snapshots.
constexpr double kLeastWithGradient = 1e-4;
// Below this squared cosine between the old vector and the one found, the old one was stale.
constexpr double kStale = 0.05;

}  // namespace

Vector StartVectors::Usable(const Vector& x, absl::Span<const Vector> other) const {
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

Vector StartVectors::Next(absl::Span<const Vector> basis) {
  Vector vector = space_.Zero();
  for (int i = 0; i < kMaxDraws; ++i) {
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

double StartVectors::LeastShare(double random) const {
  return random * kLeastRandomSquare / static_cast<double>(space_.dimension());
}

Vector StartVectors::Beside(const Vector& main, const WarmStart& start) const {
  const absl::Span<const Vector> without(&main, main.defined() ? 1 : 0);
  Vector secondary = Usable(start.secondary, without);
  const Vector gradient = Usable(start.gradient, without);
  if (!gradient.defined()) return secondary;
  if (!secondary.defined()) return gradient;
  // The signs of the two are arbitrary; they must not cancel.
  space_.Axpy(space_.Dot(gradient, secondary) < 0 ? -1 : 1, gradient, secondary);
  space_.Scale(1 / space_.Norm(secondary), secondary);
  return secondary;
}

StartVector StartVectors::First(const WarmStart& start, StartShares shares) {
  Vector main = Usable(start.vector, {});
  const bool warm = main.defined();
  Vector secondary = Beside(main, start);
  if (!warm) main = std::exchange(secondary, {});
  if (!main.defined()) return {.vector = Next({}), .least_share = LeastShare(1)};
  const bool with_gradient = Usable(start.gradient, {}).defined();
  // Orthogonal to the main vector only, so with three vectors the shares are approximate.
  const Vector random = Next({&main, 1});
  double rest = 1;
  if (secondary.defined()) rest -= shares.secondary;
  if (random.defined()) rest -= shares.random;
  space_.Scale(std::sqrt(rest), main);
  if (secondary.defined()) space_.Axpy(std::sqrt(shares.secondary), secondary, main);
  if (random.defined()) space_.Axpy(std::sqrt(shares.random), random, main);
  space_.Scale(1 / space_.Norm(main), main);
  return {.vector = std::move(main),
          .warm = warm,
          .least_share = std::max(random.defined() ? LeastShare(shares.random) : 0,
                                  with_gradient ? kLeastWithGradient : 0)};
}

EigenvalueStart StartOf(const VectorSpace& space, const WarmStart& start, const Vector& found) {
  const double cosine = space.Dot(start.vector, found) / space.Norm(start.vector);
  return cosine * cosine < kStale ? EigenvalueStart::kRestarted : EigenvalueStart::kWarm;
}

absl::Status NothingLeftError() {
  return absl::FailedPreconditionError("no eigenvalue is left in the complement of those found");
}

}  // namespace ptqwatch::internal
