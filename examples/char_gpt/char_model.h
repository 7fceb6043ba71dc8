#ifndef PTQWATCH_CHAR_GPT_CHAR_MODEL_H_
#define PTQWATCH_CHAR_GPT_CHAR_MODEL_H_

#include <cstdint>
#include <memory>

#include "torch/nn/module.h"
#include "torch/nn/modules/linear.h"

namespace ptqwatch::examples {

struct ModelConfig {
  int64_t vocabulary = 0;
  int64_t width = 32;
  int64_t layers = 2;
  int64_t heads = 2;    ///< GPT only; divides width
  int64_t experts = 0;  ///< GPT only: a mixture of as many in place of each MLP (mixture.h)
  int64_t length = 64;  ///< predictions per sequence
};

/// A language model over characters.
class CharModel : public torch::nn::Module {
 public:
  /// Cross-entropy in nats of each prediction, [B, length]. `x`: int64 [B, inputs()]. `y`: int64
  /// [B, length], the characters after each of the last `length` inputs. If `balance` is given, it
  /// becomes the sum of the balance losses of all mixtures, and stays undefined without one.
  /// Deterministic; draws no random numbers.
  at::Tensor TokenLosses(const at::Tensor& x, const at::Tensor& y, at::Tensor* balance = nullptr);
  /// Also returns whether the likeliest character is the right one: bool [B, length]. Used for
  /// evaluation only.
  struct Answers {
    at::Tensor losses;
    at::Tensor correct;
  };
  Answers TokenAnswers(const at::Tensor& x, const at::Tensor& y);
  /// Input characters needed for `length` predictions.
  virtual int64_t inputs() const = 0;

 protected:
  /// Shape [B * length, vocabulary].
  virtual at::Tensor Logits(const at::Tensor& x, at::Tensor* balance) = 0;
};

/// A linear layer without a bias. Initialised from the default generator.
torch::nn::Linear MakeLinear(int64_t in, int64_t out);

/// A pre-norm transformer: learned positions, causal attention, GELU MLP of four times the width,
/// untied head. With `experts`, a mixture in place of each MLP. Biases only in the norms, no
/// dropout. Initialised from the default generator.
std::shared_ptr<CharModel> MakeGpt(const ModelConfig& config);

/// Embeddings of the last 8 characters -> `layers` x (linear, norm, ReLU, residual) -> head. Biases
/// only in the norms. Initialised from the default generator.
std::shared_ptr<CharModel> MakeMlp(const ModelConfig& config);

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_CHAR_GPT_CHAR_MODEL_H_
