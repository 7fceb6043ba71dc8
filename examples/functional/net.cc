#include "net.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace ptqwatch::examples {
namespace {

size_t Size(int64_t rows, int64_t columns) { return static_cast<size_t>(rows * columns); }

// Uniform with mean zero. std::uniform_real_distribution differs between standard libraries.
Weight RandomWeight(std::string name, int64_t rows, int64_t columns, double deviation,
                    std::mt19937_64& generator) {
  Weight weight{std::move(name), rows, columns, std::vector<float>(Size(rows, columns)),
                std::vector<float>(Size(rows, columns))};
  const double bound = deviation * std::sqrt(3.0);
  for (float& value : weight.values) {
    const double uniform = static_cast<double>(generator() >> 11) * 0x1p-53;
    value = static_cast<float>(bound * (2 * uniform - 1));
  }
  return weight;
}

// Replaces z by normed, row by row: normed = z / sqrt(mean(z^2) + epsilon).
void Norm(std::vector<float>& z, int64_t width, std::vector<float>& inverse) {
  for (size_t row = 0; row < inverse.size(); ++row) {
    float* values = z.data() + row * static_cast<size_t>(width);
    float squares = 0;
    for (int64_t i = 0; i < width; ++i) squares += values[i] * values[i];
    inverse[row] = 1 / std::sqrt(squares / static_cast<float>(width) + Net::kNormEpsilon);
    for (int64_t i = 0; i < width; ++i) values[i] *= inverse[row];
  }
}

// Turns the gradient of the norm's output into the gradient of its input, in place.
void NormBackward(std::vector<float>& slope, const std::vector<float>& normed, int64_t width,
                  const std::vector<float>& inverse) {
  for (size_t row = 0; row < inverse.size(); ++row) {
    float* values = slope.data() + row * static_cast<size_t>(width);
    const float* out = normed.data() + row * static_cast<size_t>(width);
    float along = 0;
    for (int64_t i = 0; i < width; ++i) along += values[i] * out[i];
    along /= static_cast<float>(width);
    for (int64_t i = 0; i < width; ++i) values[i] = inverse[row] * (values[i] - out[i] * along);
  }
}

}  // namespace

Net::Net(const NetShape& shape, uint64_t seed) : shape_(shape) {
  std::mt19937_64 generator(seed);
  const auto add = [&](std::string name, int64_t rows, int64_t columns, double deviation) {
    weights_.push_back(RandomWeight(std::move(name), rows, columns, deviation, generator));
  };
  add("embedding", shape.vocabulary, shape.embedding, 1);
  int64_t in = shape.context * shape.embedding;
  for (int layer = 1; layer <= kHiddenLayers; ++layer) {
    add("hidden_" + std::to_string(layer), in, shape.width, std::sqrt(1 / static_cast<double>(in)));
    in = shape.width;
  }
  add("head", in, shape.vocabulary, std::sqrt(1 / static_cast<double>(in)));
}

double Net::Loss(std::span<const Window> windows) { return Forward(windows); }

double Net::LossAndGradient(std::span<const Window> windows) {
  const double loss = Forward(windows);
  Backward(windows);
  return loss;
}

double Net::Forward(std::span<const Window> windows) {
  const int64_t count = std::ssize(windows);
  const Weight& embedding = weights_.front();
  std::vector<float>& first = hidden_[0].input;
  first.resize(Size(count, shape_.context * shape_.embedding));
  float* to = first.data();
  for (const Window window : windows) {
    for (int64_t i = 0; i < shape_.context; ++i) {
      to =
          std::copy_n(embedding.values.data() + window[i] * shape_.embedding, shape_.embedding, to);
    }
  }
  for (int layer = 0; layer < kHiddenLayers; ++layer) {
    Activation& now = hidden_[static_cast<size_t>(layer)];
    const Weight& weight = weights_[static_cast<size_t>(1 + layer)];
    now.normed.resize(Size(count, shape_.width));
    now.inverse.resize(Size(count, 1));
    Multiply(RowMajor(now.input, weight.rows), RowMajor(weight.values, weight.columns), now.normed);
    Norm(now.normed, shape_.width, now.inverse);
    std::vector<float>& next =
        layer + 1 < kHiddenLayers ? hidden_[static_cast<size_t>(layer + 1)].input : output_;
    next.resize(now.normed.size());
    for (size_t i = 0; i < next.size(); ++i) {
      next[i] = std::max(now.normed[i], 0.0f) + (layer > 0 ? now.input[i] : 0.0f);
    }
  }

  const Weight& head = weights_.back();
  const int64_t vocabulary = shape_.vocabulary;
  probabilities_.resize(Size(count, vocabulary));
  Multiply(RowMajor(output_, head.rows), RowMajor(head.values, head.columns), probabilities_);
  double loss = 0;
  for (int64_t row = 0; row < count; ++row) {
    float* values = probabilities_.data() + row * vocabulary;
    const float largest = *std::max_element(values, values + vocabulary);
    const float target = values[windows[static_cast<size_t>(row)][shape_.context]];
    float sum = 0;
    for (int64_t i = 0; i < vocabulary; ++i) sum += values[i] = std::exp(values[i] - largest);
    for (int64_t i = 0; i < vocabulary; ++i) values[i] /= sum;
    loss += std::log(sum) - (target - largest);
  }
  return loss / static_cast<double>(count);
}

void Net::Backward(std::span<const Window> windows) {
  const int64_t count = std::ssize(windows);
  const int64_t vocabulary = shape_.vocabulary;
  // The gradient of the logits is (softmax - one-hot target) / count.
  for (int64_t row = 0; row < count; ++row) {
    probabilities_[Size(row, vocabulary) + windows[static_cast<size_t>(row)][shape_.context]] -= 1;
  }
  for (float& value : probabilities_) value /= static_cast<float>(count);
  Weight& head = weights_.back();
  const MatrixView logits = RowMajor(probabilities_, vocabulary);
  Multiply(RowMajor(output_, head.rows).Transposed(), logits, head.gradient);
  slope_.resize(output_.size());
  Multiply(logits, RowMajor(head.values, head.columns).Transposed(), slope_);

  for (int layer = kHiddenLayers - 1; layer >= 0; --layer) {
    const Activation& now = hidden_[static_cast<size_t>(layer)];
    Weight& weight = weights_[static_cast<size_t>(1 + layer)];
    change_.resize(slope_.size());
    for (size_t i = 0; i < slope_.size(); ++i) change_[i] = now.normed[i] > 0 ? slope_[i] : 0.0f;
    NormBackward(change_, now.normed, shape_.width, now.inverse);
    const MatrixView change = RowMajor(change_, weight.columns);
    Multiply(RowMajor(now.input, weight.rows).Transposed(), change, weight.gradient);
    const std::vector<float> around = layer > 0 ? slope_ : std::vector<float>();
    slope_.resize(now.input.size());
    Multiply(change, RowMajor(weight.values, weight.columns).Transposed(), slope_);
    for (size_t i = 0; i < around.size(); ++i) slope_[i] += around[i];
  }

  Weight& embedding = weights_.front();
  std::fill(embedding.gradient.begin(), embedding.gradient.end(), 0.0f);
  const float* from = slope_.data();
  for (const Window window : windows) {
    for (int64_t i = 0; i < shape_.context; ++i) {
      float* to = embedding.gradient.data() + window[i] * shape_.embedding;
      for (int64_t j = 0; j < shape_.embedding; ++j) to[j] += *from++;
    }
  }
}

}  // namespace ptqwatch::examples
