#ifndef PTQWATCH_BENCHMARKS_GPT_UNDER_TEST_H_
#define PTQWATCH_BENCHMARKS_GPT_UNDER_TEST_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "curvature/replica_surface.h"
#include "ptqwatch/subject.h"
#include "snapshot/replica.h"

namespace ptqwatch::benchmarks {

struct GptConfig {
  std::string text;  ///< empty: the King James Bible
  int64_t width = 128;
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t length = 128;
  int64_t sequences = 8;        ///< of one curvature batch
  int64_t batches = 1;          ///< curvature batches
  bool all_parameters = false;  ///< the Hessian's scope; else the matrices of the blocks
  uint64_t seed = 0;
};

/// "width 128, layers 4, ..." of what two runs must have in common to share weights.
std::string Describe(const GptConfig& config);

using Weights = std::vector<at::Tensor>;

/// The character GPT of examples/char_gpt: trained as there, and measured through a replica of its
/// own as a monitor measures it.
class GptUnderTest {
 public:
  /// Draws the initial weights; the curvature batches come from the held-out part of the text.
  /// Errors as LoadText, InvalidArgument for a text or a width that does not fit, and those of
  /// Replica::Create.
  static absl::StatusOr<std::unique_ptr<GptUnderTest>> Create(const GptConfig& config);
  virtual ~GptUnderTest() = default;

  /// `steps` steps of AdamW on 8 sequences each (betas 0.9 and 0.95, weight decay 0.1 on matrices,
  /// gradients clipped at norm 1); the training loss of the last one.
  virtual double Train(int64_t steps, const std::function<double(int64_t)>& learning_rate) = 0;

  /// Copies of the weights in training, in the order of names().
  virtual Weights Copy() const = 0;
  virtual const std::vector<std::string>& names() const = 0;
  virtual int64_t vocabulary() const = 0;
  virtual const std::vector<Batch>& curvature_batches() const = 0;

  /// The loss surface around `weights`. An earlier one must have been destroyed.
  virtual absl::StatusOr<std::unique_ptr<internal::ReplicaSurface>> SurfaceAt(
      const Weights& weights) = 0;
};

}  // namespace ptqwatch::benchmarks

#endif  // PTQWATCH_BENCHMARKS_GPT_UNDER_TEST_H_
