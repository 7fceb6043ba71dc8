#ifndef PTQWATCH_BENCHMARKS_QUANTIZE_PEERS_H_
#define PTQWATCH_BENCHMARKS_QUANTIZE_PEERS_H_

#include <cstdint>
#include <memory>
#include <vector>

namespace ptqwatch::benchmarks {

/// What LibTorch and its BLAS do with one layer on one thread, each call once and in full. Results
/// are thrown away. n tokens, an [m, d] weight; all operands are made by the constructor.
class QuantizePeers {
 public:
  /// `inputs` is [tokens, cols], `weight` [rows, cols], `gram` [cols, cols] (2 / n X^T X).
  QuantizePeers(const std::vector<float>& inputs, const std::vector<float>& weight,
                const std::vector<double>& gram, int64_t tokens, int64_t rows, int64_t cols);
  ~QuantizePeers();

  /// X^T X as a full float32 GEMM: 2 n d^2 FLOP.
  void GramGemm();
  /// A float64 Cholesky of the damped Gram, in place: LAPACK's dpotrf where the library exports it.
  void Dpotrf();
  /// Puts back what Dpotrf overwrote; not to be timed.
  void RestoreFactorInput();
  /// GPTQ as it is published (arXiv 2210.17323, algorithm 1): blocks of 128 columns, static groups
  /// of 128 and act-order, Cholesky, inverse, Cholesky again, one column after the other.
  void PublishedGptq();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// One square GEMM of that size on one thread.
void Sgemm(int64_t size);
void Dgemm(int64_t size);

}  // namespace ptqwatch::benchmarks

#endif  // PTQWATCH_BENCHMARKS_QUANTIZE_PEERS_H_
