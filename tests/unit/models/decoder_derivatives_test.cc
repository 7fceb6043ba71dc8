#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/decoder.h"
#include "models/model_family.h"
#include "torch/csrc/autograd/autograd.h"
#include "unit/models/tiny_model.h"

namespace ptqwatch::internal {
namespace decoder_derivatives_test {

using testing::Hidden;
using testing::ParsedTinyConfig;
using testing::RandomTokens;
using testing::RandomWeights;
using Tensors = std::vector<at::Tensor>;

// A model whose weights are moved by a multiple of a random direction.
class MovedModel {
 public:
  explicit MovedModel(std::string_view family)
      : config_(ParsedTinyConfig(
            family,
            // All experts, so that none is exchanged for another.
            ", \"num_key_value_heads\": 4, \"num_hidden_layers\": 1, \"n_layer\": 1, "
            "\"num_experts_per_tok\": 5")),
        start_(RandomWeights(config_)),
        direction_(RandomWeights(config_, 9)) {}

  // The mean loss, and its gradient in the order of names.
  at::Tensor Loss(double distance, Tensors& leaves) const {
    MapReader::Tensors moved;
    for (const auto& [name, tensor] : start_) {
      moved[name] = tensor;
      if (!IsTrained(name)) continue;
      moved[name] = (tensor + distance * direction_.at(name)).requires_grad_();
      leaves.push_back(moved[name]);
    }
    const MapReader reader(moved);
    const Decoder decoder = Decoder::Create(config_, reader).value();
    const at::Tensor tokens = RandomTokens(3, 9, config_.vocabulary);
    const at::Tensor hidden = Hidden(decoder, tokens.narrow(1, 0, 8));
    return decoder.ReadHead().value().TokenLosses(hidden, tokens.narrow(1, 1, 8)).mean();
  }
  Tensors Gradient(double distance) const {
    Tensors leaves;
    return torch::autograd::grad({Loss(distance, leaves)}, leaves);
  }
  Tensors Direction() const {
    Tensors parts;
    for (const auto& [name, tensor] : direction_) {
      if (IsTrained(name)) parts.push_back(tensor);
    }
    return parts;
  }

 private:
  // xIELU's constants are not.
  static bool IsTrained(const std::string& name) {
    return name.find(".eps") == std::string::npos && name.find(".beta") == std::string::npos;
  }

  const ModelConfig config_;
  MapReader::Tensors start_, direction_;
};

double Dot(const Tensors& a, const Tensors& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] * b[i]).sum(at::kDouble).item<double>();
  return sum;
}

class Derivatives : public ::testing::TestWithParam<std::string_view> {};

std::vector<std::string_view> DifferentiatedFamilies() {
  std::vector<std::string_view> names;
  for (const ModelFamily& family : ModelFamilies()) names.push_back(family.model_type);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Decoder, Derivatives, ::testing::ValuesIn(DifferentiatedFamilies()),
                         [](const auto& family) { return std::string(family.param); });

TEST_P(Derivatives, AreThoseOfFiniteDifferences) {
  const MovedModel model(GetParam());
  const Tensors direction = model.Direction();
  constexpr double kStep = 2e-3;
  Tensors unused;
  const double slope =
      (model.Loss(kStep, unused) - model.Loss(-kStep, unused)).item<double>() / (2 * kStep);
  EXPECT_NEAR(Dot(model.Gradient(0), direction), slope, 2e-3 * (1 + std::abs(slope)));

  Tensors leaves;
  const at::Tensor loss = model.Loss(0, leaves);
  const Tensors gradient = torch::autograd::grad({loss}, leaves, {}, /*retain_graph=*/true,
                                                 /*create_graph=*/true);
  at::Tensor along = at::zeros({});
  for (size_t i = 0; i < gradient.size(); ++i) along = along + (gradient[i] * direction[i]).sum();
  const Tensors product = torch::autograd::grad({along}, leaves);
  Tensors difference = model.Gradient(kStep);
  const Tensors behind = model.Gradient(-kStep);
  for (size_t i = 0; i < difference.size(); ++i) {
    difference[i] = (difference[i] - behind[i]) / (2 * kStep) - product[i];
  }
  EXPECT_GT(Dot(product, product), 0);
  EXPECT_LT(Dot(difference, difference), 1e-4 * Dot(product, product));
}

}  // namespace decoder_derivatives_test
}  // namespace ptqwatch::internal
