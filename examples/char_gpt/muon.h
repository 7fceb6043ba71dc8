#ifndef PTQWATCH_CHAR_GPT_MUON_H_
#define PTQWATCH_CHAR_GPT_MUON_H_

#include <vector>

#include "ATen/core/Tensor.h"

namespace ptqwatch::examples {

/// Moves the singular values of a matrix [m, n] to about 1 and keeps its singular vectors: five
/// steps of Newton and Schulz's iteration X = a X + b (XX')X + c (XX')^2 X with Keller Jordan's
/// coefficients (https://kellerjordan.github.io/posts/muon), from X = G / ||G||. Singular values of
/// at least a hundredth of ||G|| (Frobenius) end between 0.6 and 1.3. A zero matrix stays zero.
at::Tensor Orthogonalized(const at::Tensor& matrix);

/// Muon: steps along the orthogonalized momentum of each matrix [m, n]. The momentum is Nesterov's
/// with 0.95. A step is 0.2 sqrt(max(m, n)) times the learning rate (arXiv 2502.16982), so that its
/// elements are about as large as AdamW's, and both can share learning rate and weight decay.
class Muon {
 public:
  /// Weight decay is decoupled, as AdamW's: W = (1 - learning rate * weight decay) W.
  Muon(std::vector<at::Tensor> matrices, double weight_decay);

  /// REQUIRES: every matrix has a gradient.
  void Step(double learning_rate);

  /// The momentum of a matrix, shared with the optimizer. Undefined for any other tensor.
  at::Tensor Momentum(const at::Tensor& matrix) const;

 private:
  struct Entry {
    at::Tensor matrix;
    at::Tensor momentum;
  };
  std::vector<Entry> entries_;
  double weight_decay_;
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_CHAR_GPT_MUON_H_
