#include "curvature/lanczos.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "ATen/ops/empty.h"
#include "ATen/ops/linalg_eigh.h"
#include "base/status_macros.h"
#include "curvature/eigenvalue_bound.h"
#include "curvature/orthogonalize.h"
#include "curvature/start_vector.h"

namespace ptqwatch::internal {
namespace {

// A smaller remainder, relative to the product, is rounding: the space is invariant.
constexpr double kBreakdown = 1e-10;
constexpr double kBreakdownFloat = 1e-6;

// The start may have converged to a neighbour of the wanted eigenvector, of which it had less. So a
// search that has reached its residual goes on until the bound is this near, relative to the value,
constexpr double kNearBound = 0.1;
// but for no more products than this.
constexpr int kMaxBoundProducts = 2;
// A search with at least this residual ratio can use rough products: their error does not matter.
constexpr double kRoughResidual = 0.02;
// Rough products that are off by more than this share are dropped. Below, they may be off by more
// than a residual: an exact product gives value and residual, and the bound moves by the error.
constexpr double kRoughError = 0.05;
// An eigenvalue below this share of the spectrum's extent counts as zero for its residual.
constexpr double kZeroEigenvalue = 1e-3;
// Degree of the polynomial that filters the secondary start vector.
constexpr int kFilterDegree = 4;
// A secondary vector with a smaller norm outside the eigenvector is rounding.
constexpr double kMinSecondary = 1e-3;

// The projection Q'HQ on the basis, and its eigenvectors.
class Projection {
 public:
  size_t size() const { return size_; }
  double at(size_t i, size_t j) const { return entries_[i * size_ + j]; }

  // The matrix is symmetric: the new column is the new row too.
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

  // Makes the projection diagonal, with these Ritz values.
  void Reset(const std::vector<double>& diagonal) {
    size_ = diagonal.size();
    entries_.assign(size_ * size_, 0);
    for (size_t i = 0; i < size_; ++i) entries_[i * size_ + i] = diagonal[i];
  }

  // Ritz values, beginning at the wanted end. vectors[k]: basis weights of the k-th Ritz vector.
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

// Returns false if the remainder of x, whose norm was 1, is only rounding.
bool Normalize(std::vector<double>& x) {
  double squares = 0;
  for (double value : x) squares += value * value;
  const double norm = std::sqrt(squares);
  if (!(norm > kMinSecondary)) return false;
  for (double& value : x) value /= norm;
  return true;
}

class LanczosSearch {
 public:
  LanczosSearch(SymmetricOperator& hessian, const EigenpairOptions& options,
                absl::Span<const Vector> deflated, int64_t max_basis, bool rough,
                const ExecutionContext& context)
      : context_(context),
        hessian_(hessian),
        space_(hessian.space()),
        options_(options),
        deflated_(deflated),
        dimension_(space_.dimension() - static_cast<int64_t>(deflated.size())),
        max_basis_(static_cast<size_t>(std::min(max_basis, dimension_))),
        breakdown_(space_.dtype() == at::kDouble ? kBreakdown : kBreakdownFloat),
        rough_(rough),
        confirm_(rough && hessian.rough_needs_check()),
        start_vectors_(space_, deflated, context) {}

  absl::StatusOr<EigenpairSearch> Run(const WarmStart& start) {
    StartVector first = start_vectors_.First(start, SharesFor(start, options_));
    if (!first.vector.defined()) return NothingLeftError();
    basis_.push_back(std::move(first.vector));
    start_weights_ = {1};
    least_share_ = first.least_share;
    int bound_products = 0;
    Vector found;
    while (true) {
      PTQWATCH_RETURN_IF_ERROR(Extend());
      if (!confirmed_) break;
      const bool full = basis_.size() >= max_basis_;
      bool enough = LastProduct();
      if (!enough && residual_reached_ && (full || !left_invariant_space_)) {
        enough = BoundIsNear() || bound_products >= kMaxBoundProducts;
        ++bound_products;
      }
      // The space is invariant and may not contain the wanted eigenvector, so continue at random.
      if (remainder_ == 0 && !LastProduct()) {
        next_ = start_vectors_.Next(basis_);
        enough = enough || !next_.defined();
      }
      if (enough) {
        found = Combine(ritz_[0]);
        space_.Scale(1 / space_.Norm(found), found);
        if (!confirm_) break;
        PTQWATCH_ASSIGN_OR_RETURN(confirmed_, Confirm(found));
        if (!confirmed_ || residual_reached_ || LastProduct() || !next_.defined()) break;
      }
      if (full) KeepBestRitzVectors();
      basis_.push_back(std::move(next_));
    }
    EigenpairSearch search;
    if (!confirmed_) {
      search.pair.products = pair_.products;
      return search;
    }
    if (largest_product_ == 0 && deflated_.empty()) return ZeroOperatorError();
    search.next.vector = std::move(found);
    search.next.secondary = Secondary(search.next.vector);
    pair_.vector = search.next.vector.elements;
    if (first.warm) pair_.start = StartOf(space_, start, search.next.vector);
    search.pair = std::move(pair_);
    if (deflated_.empty()) MoveTo(search.krylov);
    return search;
  }

  // False if rough products found what exact ones do not confirm.
  bool confirmed() const { return confirmed_; }

 private:
  // Adds one product, one column of the projection, and the resulting Ritz pairs.
  absl::Status Extend() {
    next_ = space_.Zero();
    const absl::Status status = rough_ ? hessian_.ApplyRoughly(basis_.back(), next_, context_)
                                       : hessian_.Apply(basis_.back(), next_, context_);
    ++pair_.products;
    // Nearby, the loss may be infinite.
    confirmed_ = !confirm_ || !absl::IsDataLoss(status);
    if (!confirmed_) return absl::OkStatus();
    PTQWATCH_RETURN_IF_ERROR(status);
    const double size = space_.Norm(next_);
    largest_product_ = std::max(largest_product_, size);
    confirmed_ = !confirm_ || size > 0;
    if (!confirmed_) return absl::OkStatus();
    if (largest_product_ == 0 && deflated_.empty() && pair_.products >= kMaxZeroProducts) {
      return ZeroOperatorError();
    }
    along_deflated_.push_back(Orthogonalize(space_, deflated_, next_));
    const std::vector<double> column = Orthogonalize(space_, basis_, next_);
    // Without rounding, products with a symmetric matrix make the projection tridiagonal.
    if (confirm_ && !restarted_) confirmed_ = Asymmetry(column) <= kRoughError * largest_product_;
    projection_.AddColumn(column);
    remainder_ = space_.Norm(next_);
    if (Whole() || remainder_ <= breakdown_ * size) {
      remainder_ = 0;
    } else {
      space_.Scale(1 / remainder_, next_);
    }
    left_invariant_space_ = left_invariant_space_ || remainder_ == 0;
    projection_.Solve(options_.end, values_, ritz_);
    UpdatePair();
    UpdateBound();
    return absl::OkStatus();
  }

  // How far the newest column of the projection is from its row.
  double Asymmetry(const std::vector<double>& column) const {
    double squares = 0;
    for (size_t i = 0; i + 1 < column.size(); ++i) {
      const double row = i + 2 == column.size() ? remainder_ : 0;
      squares += (column[i] - row) * (column[i] - row);
    }
    return std::sqrt(squares);
  }

  // Updates the wanted Ritz value and its residual.
  void UpdatePair() {
    double squares = 0;
    for (size_t d = 0; d < deflated_.size(); ++d) {
      double along = 0;
      for (size_t i = 0; i < basis_.size(); ++i) along += ritz_[0][i] * along_deflated_[i][d];
      squares += along * along;
    }
    SetPair(values_[0], remainder_ * std::abs(ritz_[0].back()), squares);
  }

  // Sets value and residual: `inner` in the complement, and the square of that along the deflated
  // vectors, which is their own residual and stays.
  void SetPair(double value, double inner, double deflated_square) {
    const double residual = std::sqrt(inner * inner + deflated_square);
    const double widest = std::max(std::abs(values_.front()), std::abs(values_.back()));
    pair_.value = value;
    pair_.residual_ratio = residual == 0 ? 0 : residual / std::abs(value);
    const double goal =
        options_.residual_ratio * std::max(std::abs(value), kZeroEigenvalue * widest);
    pair_.converged = residual <= goal;
    residual_reached_ = inner <= goal;
  }

  // Replaces value and residual by those of an exact product with the vector found, and moves the
  // bound by what the rough products are off. Returns false if that is too much.
  absl::StatusOr<bool> Confirm(const Vector& found) {
    Vector product = space_.Zero();
    PTQWATCH_RETURN_IF_ERROR(hessian_.Apply(found, product, context_));
    ++pair_.products;
    const double size = space_.Norm(product);
    double deflated_square = 0;
    for (double along : Orthogonalize(space_, deflated_, product)) deflated_square += along * along;
    const double value = space_.Dot(found, product);
    space_.Axpy(-value, found, product);
    const double inner = space_.Norm(product);
    if (next_.defined()) space_.Axpy(-remainder_ * ritz_[0].back(), next_, product);
    const double error = std::abs(value - values_[0]) + space_.Norm(product);
    SetPair(value, inner, deflated_square);
    pair_.bound += options_.end == SpectrumEnd::kTop ? error : -error;
    return error <= kRoughError * size;
  }

  // One more is the exact product that confirms what rough ones found.
  bool LastProduct() const {
    return Whole() || pair_.products + (confirm_ ? 1 : 0) >= options_.max_products;
  }

  bool Whole() const { return static_cast<int64_t>(basis_.size()) == dimension_; }

  // The steps since a restart say nothing about the start: the bound of those before holds.
  void UpdateBound() {
    const double sign = options_.end == SpectrumEnd::kTop ? 1 : -1;
    if (left_invariant_space_) {
      pair_.bound = pair_.value;
    } else if (!restarted_) {
      diagonal_.push_back(sign * projection_.at(projection_.size() - 1, projection_.size() - 1));
      remainders_.push_back(remainder_);
      // If the start has hardly any of the vector found, it may have as little of the wanted one.
      // This share also keeps the bound outside of the residual.
      const double share = std::min(least_share_, ritz_[0][0] * ritz_[0][0] / 4);
      pair_.bound = sign * EigenvalueBound(diagonal_, remainders_, sign * pair_.value, share);
    } else if (sign * (pair_.bound - pair_.value) < 0) {
      pair_.bound = pair_.value;
    }
  }

  bool BoundIsNear() const {
    return std::abs(pair_.bound - pair_.value) <= kNearBound * std::abs(pair_.value);
  }

  // Wu and Simon's thick restart: keeps the Ritz vectors at the wanted end in the basis.
  void KeepBestRitzVectors() {
    const size_t keep = std::max<size_t>(1, max_basis_ / 3);
    const std::vector<std::vector<double>> weights(ritz_.begin(), ritz_.begin() + keep);
    const std::vector<std::vector<double>> old_along = std::exchange(along_deflated_, {});
    const std::vector<double> old_start = std::exchange(start_weights_, {});
    for (const std::vector<double>& weight : weights) {
      double start = 0;
      std::vector<double> along(deflated_.size());
      for (size_t i = 0; i < weight.size(); ++i) {
        start += weight[i] * old_start[i];
        for (size_t d = 0; d < along.size(); ++d) along[d] += weight[i] * old_along[i][d];
      }
      start_weights_.push_back(start);
      along_deflated_.push_back(std::move(along));
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

  // (H - b)^k s without its component along the vector found, where s is the start and b the other
  // end of the spectrum. It keeps the sign of every eigenvector's component, so the secondary
  // vectors of successive searches add up.
  Vector Secondary(const Vector& found) const {
    if (basis_.size() < 2) return {};
    std::vector<double> weights = start_weights_;
    weights.resize(projection_.size());
    const int degree = std::min<int>(kFilterDegree, static_cast<int>(basis_.size()) - 1);
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
    Vector secondary = Combine(weights);
    Orthogonalize(space_, {&found, 1}, secondary);
    space_.Scale(1 / space_.Norm(secondary), secondary);
    return secondary;
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
  const bool rough_;
  const bool confirm_;
  bool confirmed_ = true;
  StartVectors start_vectors_;
  double least_share_ = 0;  // of the wanted eigenvector in the start

  std::vector<Vector> basis_;
  std::vector<double> start_weights_;                // the start in the basis
  std::vector<std::vector<double>> along_deflated_;  // components of H times each basis vector
  Projection projection_;
  Vector next_;  // of norm 1, unless remainder_ is 0
  double remainder_ = 0;
  // Lanczos's tridiagonal matrix, until a restart; the diagonal as if the wanted end was the top.
  std::vector<double> diagonal_;
  std::vector<double> remainders_;
  double largest_product_ = 0;
  bool left_invariant_space_ = false;
  bool residual_reached_ = false;  // in the complement of the deflated vectors
  bool restarted_ = false;
  std::vector<double> values_;             // Ritz values, wanted end first
  std::vector<std::vector<double>> ritz_;  // weights of the basis in each Ritz vector
  HessianEigenpair pair_;
};

}  // namespace

absl::StatusOr<EigenpairSearch> Lanczos(SymmetricOperator& hessian, const WarmStart& start,
                                        const EigenpairOptions& options,
                                        absl::Span<const Vector> deflated, int64_t max_basis,
                                        const ExecutionContext& context) {
  int unconfirmed = 0;
  if (options.residual_ratio >= kRoughResidual) {
    LanczosSearch search(hessian, options, deflated, max_basis, /*rough=*/true, context);
    absl::StatusOr<EigenpairSearch> found = search.Run(start);
    if (!found.ok() || search.confirmed()) return found;
    unconfirmed = found->pair.products;
  }
  PTQWATCH_ASSIGN_OR_RETURN(
      EigenpairSearch found,
      LanczosSearch(hessian, options, deflated, max_basis, /*rough=*/false, context).Run(start));
  found.pair.products += unconfirmed;
  return found;
}

}  // namespace ptqwatch::internal
