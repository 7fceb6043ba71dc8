#ifndef PTQWATCH_FUNCTIONAL_NET_H_
#define PTQWATCH_FUNCTIONAL_NET_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "matrix.h"

namespace ptqwatch::examples {

struct NetShape {
  int64_t vocabulary = 0;
  int64_t context = 8;     ///< characters before each prediction
  int64_t embedding = 16;  ///< width of a character's embedding
  int64_t width = 64;
};

/// A row-major weight matrix and the gradient of the loss with respect to it. Must not be resized
/// once the net exists, because the monitor keeps the addresses.
struct Weight {
  std::string name;
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<float> values;
  std::vector<float> gradient;
};

/// Points at `context` characters of a text and the next one.
using Window = const uint8_t*;

/// A language model over characters with its own arithmetic:
///
///   x = embeddings of the context, concatenated
///   x = relu(norm(x * hidden_1))
///   x = x + relu(norm(x * hidden_2)), and the same with hidden_3
///   logits = x * head
///
/// norm(z) = z / sqrt(mean(z^2) + kNormEpsilon) over a row. Not thread-safe.
class Net {
 public:
  static constexpr int kHiddenLayers = 3;
  static constexpr float kNormEpsilon = 1e-5f;

  Net(const NetShape& shape, uint64_t seed);

  /// Mean cross-entropy of the predictions, in nats.
  double Loss(std::span<const Window> windows);
  /// Returns the loss and also computes the gradient of every weight.
  double LossAndGradient(std::span<const Window> windows);

  const NetShape& shape() const { return shape_; }
  /// "embedding", "hidden_1", "hidden_2", "hidden_3", "head".
  std::vector<Weight>& weights() { return weights_; }
  const std::vector<Weight>& weights() const { return weights_; }

 private:
  /// The backward pass's inputs from a hidden layer; a row is one prediction.
  struct Activation {
    std::vector<float> input;
    std::vector<float> normed;   // after the norm, before the ReLU
    std::vector<float> inverse;  // 1 / sqrt(mean(z^2) + epsilon), one per row
  };

  /// Computes the loss and leaves the softmax of the logits in probabilities_.
  double Forward(std::span<const Window> windows);
  void Backward(std::span<const Window> windows);

  NetShape shape_;
  std::vector<Weight> weights_;
  std::array<Activation, kHiddenLayers> hidden_;
  std::vector<float> output_;  // input of the head
  std::vector<float> probabilities_;
  std::vector<float> slope_;  // gradient of a layer's output, then of its input
  std::vector<float> change_;
};

}  // namespace ptqwatch::examples

#endif  // PTQWATCH_FUNCTIONAL_NET_H_
