#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "ATen/ops/linalg_eigh.h"
#include "base/reservation.h"
#include "curvature/eigenpair.h"
#include "curvature/random_start.h"

namespace ptqwatch::internal {
namespace {

// A remainder this small beside the product is rounding: the space is invariant.
constexpr double kBreakdown = 1e-10;
constexpr double kBreakdownFloat = 1e-6;
// More vectors than this no longer save products.
constexpr int64_t kMostBasis = 24;
constexpr int64_t kLeastBasis = 3;
// Beside the basis: the newest product, the eigenvector and the scout.
constexpr int64_t kOtherVectors = 3;

// The vector of before is nearly an eigenvector after any step of training: a warm start looks
// converged before a larger eigenvalue, with the share of the start that is along its vector, has
// had the products to grow. So it is believed only when an eigenvalue this much larger would have
// shown, or else after so many products; the scout keeps what it has seen for the next time.
constexpr double kHiddenExcess = 0.1;
// On spectra with a bulk and 20 outliers, of 2000 to 10^6 parameters, six products of a start that
// is half random always found one that had grown to 1.2 or more times the old top, five sometimes
// missed the 1.2, four also the 1.5.
constexpr int kEnoughProducts = 6;
constexpr int kEnoughProductsWhenCoarse = 4;
// An eigenvalue closer to zero than this share of the spectrum is zero as far as its residual goes.
constexpr double kZeroEigenvalue = 1e-3;
// Degree of the scout's filter.
constexpr int kScoutDegree = 4;
// Less of a scout than this beside the eigenvector is rounding.
constexpr double kLeastScout = 1e-3;

// The projection Q'HQ on the basis, its eigenvectors, and what goes with them.
class Projection {
 public:
  size_t size() const { return size_; }
  double at(size_t i, size_t j) const { return entries_[i * size_ + j]; }

  // Q'HQ is symmetric: the new column is the new row.
  void AddColumn(const std::vector<double>& column) {
    const size_t size = column.size();
    std::vector<double> grown(size * size);
    for (size_t i = 0; i < size; ++i) {
      for (size_t j = 0; j < size; ++j) {
        grown[i * size + j] = i + 1 == size ? column[j] : j + 1 == size ? column[i] : at(i, j);
      }
    }
    entries_ = std::move(grown);
    size_ = size;
  }

  // Only the diagonal, of Ritz values.
  void Reset(const std::vector<double>& diagonal) {
    size_ = diagonal.size();
    entries_.assign(size_ * size_, 0);
    for (size_t i = 0; i < size_; ++i) entries_[i * size_ + i] = diagonal[i];
  }

  // Ritz values from the wanted end on; vectors[k] are the weights of the basis in the k-th.
  void Solve(SpectrumEnd end, std::vector<double>& values,
             std::vector<std::vector<double>>& vectors) const {
    const auto n = static_cast<int64_t>(size_);
    at::Tensor matrix = at::empty({n, n}, at::kDouble);
    std::copy(entries_.begin(), entries_.end(), matrix.mutable_data_ptr<double>());
    const auto [ascending, columns] = at::linalg_eigh(matrix);
    const auto value = ascending.accessor<double, 1>();
    const auto column = columns.accessor<double, 2>();
    values.clear();
    vectors.assign(size_, {});
    for (int64_t k = 0; k < n; ++k) {
      const int64_t from = end == SpectrumEnd::kTop ? n - 1 - k : k;
      values.push_back(value[from]);
      for (int64_t i = 0; i < n; ++i) {
        vectors[static_cast<size_t>(k)].push_back(column[i][from]);
      }
    }
  }

  std::vector<double> Times(const std::vector<double>& x) const {
    std::vector<double> y(size_);
    for (size_t i = 0; i < size_; ++i) {
      for (size_t j = 0; j < size_; ++j) y[i] += at(i, j) * x[j];
    }
    return y;
  }

 private:
  size_t size_ = 0;
  std::vector<double> entries_;
};

// False where too little is left of x, once of norm 1, for it to be more than rounding.
bool Normalize(std::vector<double>& x) {
  double squares = 0;
  for (double value : x) squares += value * value;
  const double norm = std::sqrt(squares);
  if (!(norm > kLeastScout)) return false;
  for (double& value : x) value /= norm;
  return true;
}

class Lanczos {
 public:
  Lanczos(SymmetricOperator& hessian, const EigenpairOptions& options,
          absl::Span<const Vector> deflated, int64_t max_basis, const ExecutionContext& context)
      : context_(context),
        hessian_(hessian),
        space_(hessian.space()),
        options_(options),
        deflated_(deflated),
        dimension_(space_.dimension() - static_cast<int64_t>(deflated.size())),
        max_basis_(static_cast<size_t>(std::min(max_basis, dimension_))),
        breakdown_(space_.dtype() == at::kDouble ? kBreakdown : kBreakdownFloat),
        random_(space_, deflated, SharesFor(options), context) {}

  absl::StatusOr<Eigenpair> Run(const WarmStart& start, KrylovSpace* krylov) {
    bool warm = false;
    bool biased = false;
    basis_.push_back(random_.First(start, warm, biased));
    if (!basis_.back().defined()) {
      return absl::FailedPreconditionError(
          "no eigenvalue is left in the complement of those found");
    }
    start_ = {1};
    const int enough = IsCoarse(options_) ? kEnoughProductsWhenCoarse : kEnoughProducts;
    while (true) {
      if (absl::Status status = Extend(); !status.ok()) return status;
      const bool believed = !biased || Whole() || pair_.products >= enough || WouldHaveShown();
      const bool full = basis_.size() >= max_basis_;
      const bool last = pair_.products >= options_.max_products || Whole();
      if (last || (enough_ && believed && (full || !split_))) break;
      // All that can be reached from this start may not hold what is wanted.
      if (remainder_ == 0) next_ = random_.Next(basis_);
      if (!next_.defined()) break;
      if (full) KeepBestRitzVectors();
      basis_.push_back(std::move(next_));
    }
    if (largest_product_ == 0 && deflated_.empty()) return ZeroHessianError();
    pair_.vector = Combine(ritz_[0]);
    space_.Scale(1 / space_.Norm(pair_.vector), pair_.vector);
    if (warm) pair_.start = StartOf(space_, start, pair_.vector);
    pair_.scout = Scout();
    if (krylov != nullptr) MoveTo(*krylov);
    return std::move(pair_);
  }

 private:
  // One product, and what is known after it.
  absl::Status Extend() {
    next_ = space_.Zero();
    if (absl::Status status = hessian_.Apply(basis_.back(), next_, context_); !status.ok()) {
      return status;
    }
    ++pair_.products;
    const double size = space_.Norm(next_);
    largest_product_ = std::max(largest_product_, size);
    if (largest_product_ == 0 && deflated_.empty() && pair_.products >= kZeroProducts) {
      return ZeroHessianError();
    }
    leaks_.push_back(Orthogonalize(space_, deflated_, next_));
    projection_.AddColumn(Orthogonalize(space_, basis_, next_));
    remainder_ = space_.Norm(next_);
    if (static_cast<int64_t>(basis_.size()) == dimension_ || remainder_ <= breakdown_ * size) {
      remainder_ = 0;
    } else {
      space_.Scale(1 / remainder_, next_);
    }
    split_ = split_ || remainder_ == 0;
    log_remainders_ += std::log(remainder_);
    projection_.Solve(options_.end, values_, ritz_);

    const double inner = remainder_ * std::abs(ritz_[0].back());
    double squares = inner * inner;
    for (size_t d = 0; d < deflated_.size(); ++d) {
      double leak = 0;
      for (size_t i = 0; i < basis_.size(); ++i) leak += ritz_[0][i] * leaks_[i][d];
      squares += leak * leak;
    }
    const double residual = std::sqrt(squares);
    const double widest = std::max(std::abs(values_.front()), std::abs(values_.back()));
    pair_.value = values_[0];
    pair_.residual_ratio = residual == 0 ? 0 : residual / std::abs(pair_.value);
    const double goal =
        options_.residual_ratio * std::max(std::abs(pair_.value), kZeroEigenvalue * widest);
    pair_.converged = residual <= goal;
    // What leaks into the vectors found before is their residual: no product here makes it less.
    enough_ = inner <= goal;
    return absl::OkStatus();
  }

  bool Whole() const { return static_cast<int64_t>(basis_.size()) == dimension_; }

  // With p the monic polynomial whose roots are the Ritz values, ||p(H) s|| is the product of the
  // remainders so far: a start s with the share c along an eigenvector of eigenvalue x has
  // |c p(x)| of at most that. Whether x = value +- kHiddenExcess |value| is ruled out so, for the
  // share that a random vector has of a typical direction.
  bool WouldHaveShown() const {
    if (restarted_) return false;
    const double excess = kHiddenExcess * std::abs(pair_.value);
    double log_growth = 0.5 * std::log(SharesFor(options_).random) -
                        0.5 * std::log(static_cast<double>(space_.dimension()));
    for (double other : values_) log_growth += std::log(std::abs(pair_.value - other) + excess);
    return log_growth > log_remainders_;
  }

  // Wu and Simon's thick restart: the Ritz vectors at the wanted end stay in the basis.
  void KeepBestRitzVectors() {
    const size_t keep = std::max<size_t>(1, max_basis_ / 3);
    const std::vector<std::vector<double>> weights(ritz_.begin(), ritz_.begin() + keep);
    const std::vector<std::vector<double>> old_leaks = std::exchange(leaks_, {});
    const std::vector<double> old_start = std::exchange(start_, {});
    for (const std::vector<double>& weight : weights) {
      double along = 0;
      std::vector<double> leak(deflated_.size());
      for (size_t i = 0; i < weight.size(); ++i) {
        along += weight[i] * old_start[i];
        for (size_t d = 0; d < leak.size(); ++d) leak[d] += weight[i] * old_leaks[i][d];
      }
      start_.push_back(along);
      leaks_.push_back(std::move(leak));
    }
    space_.Rotate(weights, basis_);
    projection_.Reset({values_.begin(), values_.begin() + keep});
    restarted_ = true;
  }

  Vector Combine(const std::vector<double>& weights) const {
    Vector sum = space_.Zero();
    for (size_t i = 0; i < weights.size(); ++i) space_.Axpy(weights[i], basis_[i], sum);
    return sum;
  }

  // (H - b)^k applied to the start, b the other end of the spectrum, without the vector found. All
  // eigenvectors keep their sign in it, so that what one search adds to another's scout adds up.
  Vector Scout() const {
    if (basis_.size() < 2) return {};
    std::vector<double> weights = start_;
    weights.resize(projection_.size());
    const int degree = std::min<int>(kScoutDegree, static_cast<int>(basis_.size()) - 1);
    for (int k = 0; k < degree; ++k) {
      std::vector<double> product = projection_.Times(weights);
      for (size_t i = 0; i < product.size(); ++i) product[i] -= values_.back() * weights[i];
      if (!Normalize(product)) return {};
      weights = std::move(product);
    }
    double along = 0;
    for (size_t i = 0; i < weights.size(); ++i) along += weights[i] * ritz_[0][i];
    for (size_t i = 0; i < weights.size(); ++i) weights[i] -= along * ritz_[0][i];
    if (!Normalize(weights)) return {};
    Vector scout = Combine(weights);
    Orthogonalize(space_, {&pair_.vector, 1}, scout);
    space_.Scale(1 / space_.Norm(scout), scout);
    return scout;
  }

  void MoveTo(KrylovSpace& krylov) {
    const size_t known = basis_.size();
    const bool open = remainder_ > 0;
    const size_t size = known + (open ? 1 : 0);
    krylov.matrix.assign(size * size, 0);
    for (size_t i = 0; i < known; ++i) {
      for (size_t j = 0; j < known; ++j) krylov.matrix[i * size + j] = projection_.at(i, j);
    }
    if (open) {
      krylov.matrix[(known - 1) * size + known] = remainder_;
      krylov.matrix[known * size + known - 1] = remainder_;
      basis_.push_back(std::move(next_));
    }
    krylov.basis = std::move(basis_);
    krylov.projected = known;
    krylov.level = values_[values_.size() / 2];
  }

  const ExecutionContext& context_;
  SymmetricOperator& hessian_;
  const VectorSpace& space_;
  const EigenpairOptions& options_;
  const absl::Span<const Vector> deflated_;
  const int64_t dimension_;  // of the complement
  const size_t max_basis_;
  const double breakdown_;
  RandomStart random_;

  std::vector<Vector> basis_;
  std::vector<double> start_;               // weights of the basis in the start
  std::vector<std::vector<double>> leaks_;  // of the basis, products along what is deflated
  Projection projection_;
  Vector next_;  // of norm 1, where remainder_ is not 0
  double remainder_ = 0;
  double log_remainders_ = 0;
  double largest_product_ = 0;
  bool split_ = false;   // an invariant space was left
  bool enough_ = false;  // the residual in the complement is what was asked for
  bool restarted_ = false;
  std::vector<double> values_;             // Ritz values, wanted end first
  std::vector<std::vector<double>> ritz_;  // their weights
  Eigenpair pair_;
};

}  // namespace

absl::StatusOr<Eigenpair> ExtremeEigenpair(SymmetricOperator& hessian, const WarmStart& start,
                                           const EigenpairOptions& options,
                                           absl::Span<const Vector> deflated, KrylovSpace* krylov,
                                           const ExecutionContext& context) {
  const int64_t bytes = hessian.space().bytes();
  if (bytes == 0) return absl::FailedPreconditionError("the space of the Hessian is empty");
  int64_t budget = options.max_bytes;
  if (context.bytes != nullptr) {
    budget = std::min(budget, context.bytes->limit() - context.bytes->used());
  }
  // A small space needs no more vectors than it has dimensions.
  const int64_t useful = std::min(kMostBasis, hessian.space().dimension());
  const int64_t max_basis = std::min(useful, budget / bytes - kOtherVectors);
  if (max_basis < std::min(kLeastBasis, useful)) {
    return PowerEigenpair(hessian, start, options, deflated, krylov, context);
  }
  Reservation reservation(context.bytes);
  if (absl::Status status =
          reservation.Take((max_basis + kOtherVectors) * bytes, "the Lanczos basis");
      !status.ok()) {
    return OfVectorBudget(status);
  }
  const auto begin = context.clock->Monotonic();
  absl::StatusOr<Eigenpair> pair =
      Lanczos(hessian, options, deflated, max_basis, context).Run(start, krylov);
  if (pair.ok()) {
    pair->seconds = std::chrono::duration<double>(context.clock->Monotonic() - begin).count();
  }
  return pair;
}

}  // namespace ptqwatch::internal
