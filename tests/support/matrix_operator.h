#ifndef PTQWATCH_TESTS_SUPPORT_MATRIX_OPERATOR_H_
#define PTQWATCH_TESTS_SUPPORT_MATRIX_OPERATOR_H_

#include <string>
#include <utility>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/linalg_qr.h"
#include "ATen/ops/mv.h"
#include "curvature/symmetric_operator.h"

namespace ptqwatch::testing {

/// Products with a dense float64 matrix whose rows follow the parameters' order. Counts the
/// products.
class MatrixOperator final : public internal::SymmetricOperator {
 public:
  using Parameters = std::vector<std::pair<std::string, at::Tensor>>;

  explicit MatrixOperator(at::Tensor matrix)
      : MatrixOperator(matrix, Parameters{{"x", matrix[0]}}) {}
  MatrixOperator(at::Tensor matrix, const Parameters& parameters)
      : matrix_(std::move(matrix)), space_(parameters, at::kDouble, at::kCPU) {}

  const internal::VectorSpace& space() const override { return space_; }
  absl::Status Apply(const internal::Vector& v, internal::Vector& av,
                     const ExecutionContext& context) override {
    if (absl::Status status = context.Checkpoint(); !status.ok()) return status;
    ++products;
    av.elements.copy_(at::mv(matrix_, v.elements));
    return absl::OkStatus();
  }

  int products = 0;

 private:
  at::Tensor matrix_;
  internal::VectorSpace space_;
};

/// A symmetric matrix with these eigenvalues whose eigenvectors lie along no axis.
inline at::Tensor MatrixWith(const at::Tensor& eigenvalues) {
  const int64_t n = eigenvalues.numel();
  at::Tensor waves = ((at::arange(n * n, at::kDouble) * 12.9898).sin() * 43758.5453).view({n, n});
  waves = waves - waves.floor() - 0.5;
  const at::Tensor q = std::get<0>(at::linalg_qr(waves));
  return (q * eigenvalues).matmul(q.t());
}

}  // namespace ptqwatch::testing

#endif  // PTQWATCH_TESTS_SUPPORT_MATRIX_OPERATOR_H_
