// The hand-written arithmetic of examples/functional against ATen's.
#include <gmock/gmock.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/from_blob.h"
#include "adamw.h"
#include "matrix.h"
#include "net.h"
#include "net_subject.h"
#include "train.h"

namespace ptqwatch::examples {
namespace functional_net_test {

using ::testing::ElementsAre;

std::vector<uint8_t> RandomText(size_t size, int64_t vocabulary) {
  std::mt19937_64 generator(7);
  std::vector<uint8_t> text(size);
  for (uint8_t& number : text) {
    number = static_cast<uint8_t>(generator() % static_cast<uint64_t>(vocabulary));
  }
  return text;
}

std::vector<Window> AllWindows(const std::vector<uint8_t>& text, int64_t context) {
  std::vector<Window> windows;
  for (size_t i = 0; i + static_cast<size_t>(context) < text.size(); ++i) {
    windows.push_back(text.data() + i);
  }
  return windows;
}

TEST(Matrix, MultipliesAnyShapeAndEitherOrientation) {
  std::mt19937_64 generator(3);
  for (const auto& [rows, inner, columns] : std::vector<std::array<int64_t, 3>>{
           {1, 1, 1}, {3, 5, 2}, {4, 7, 16}, {9, 16, 17}, {6, 3, 40}}) {
    std::vector<float> a(static_cast<size_t>(rows * inner));
    std::vector<float> b(static_cast<size_t>(inner * columns));
    // Small integers, so that every sum is exact.
    for (float& value : a) value = static_cast<float>(generator() % 9) - 4;
    for (float& value : b) value = static_cast<float>(generator() % 9) - 4;
    std::vector<float> expected(static_cast<size_t>(rows * columns));
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        for (int64_t k = 0; k < inner; ++k) {
          expected[static_cast<size_t>(i * columns + j)] +=
              a[static_cast<size_t>(i * inner + k)] * b[static_cast<size_t>(k * columns + j)];
        }
      }
    }
    std::vector<float> product(expected.size());
    Multiply(RowMajor(a, inner), RowMajor(b, columns), product);
    EXPECT_EQ(product, expected);
    std::vector<float> transposed(a.size());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < inner; ++k) {
        transposed[static_cast<size_t>(k * rows + i)] = a[static_cast<size_t>(i * inner + k)];
      }
    }
    Multiply(RowMajor(transposed, rows).Transposed(), RowMajor(b, columns), product);
    EXPECT_EQ(product, expected);
  }
}

TEST(Net, LossAndGradientAreThoseOfAutograd) {
  constexpr int64_t kVocabulary = 11;
  Net net({.vocabulary = kVocabulary, .context = 3, .embedding = 5, .width = 12}, /*seed=*/1);
  const std::vector<uint8_t> text = RandomText(64, kVocabulary);
  const std::vector<Window> windows = AllWindows(text, 3);

  TensorMap weights;
  std::vector<std::string> names;
  for (const NamedTensor& named : WrapWeights(net)) {
    weights[named.name] = named.tensor.clone().set_requires_grad(true);
    names.push_back(named.name);
  }
  EXPECT_THAT(names, ElementsAre("embedding", "hidden_1", "hidden_2", "hidden_3", "head"));
  const auto batches = WindowBatches(windows, 3, std::ssize(windows));
  ASSERT_EQ(batches.size(), 1u);
  at::AutoGradMode with_gradients(true);
  const at::Tensor expected = NetLosses(weights, batches[0]).values.mean();
  expected.backward();

  const double loss = net.LossAndGradient(windows);
  EXPECT_NEAR(loss, expected.item<double>(), 1e-5 * loss);
  EXPECT_EQ(net.Loss(windows), loss);
  for (Weight& weight : net.weights()) {
    const at::Tensor own =
        at::from_blob(weight.gradient.data(), {weight.rows, weight.columns}, at::kFloat);
    const at::Tensor reference = weights.at(weight.name).grad();
    const double norm = reference.norm().item<double>();
    EXPECT_GT(norm, 1e-3) << weight.name;
    EXPECT_LE((own - reference).norm().item<double>(), 1e-5 * norm) << weight.name;
  }
}

TEST(Net, WindowBatchesHoldEveryWindowOnce) {
  const std::vector<uint8_t> text = {0, 1, 2, 3, 4, 5};
  const auto batches = WindowBatches(AllWindows(text, 2), 2, 3);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[0][0].sizes(), (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(batches[1][0].sizes(), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(batches[1][0][0][2].item<int64_t>(), 5);
}

TEST(AdamW, FirstStepMovesByTheLearningRateAndDecays) {
  std::vector<Weight> weights = {{"w", 1, 3, {1.0f, -2.0f, 4.0f}, {0.5f, -3.0f, 0.0f}}};
  AdamW optimizer(&weights, /*weight_decay=*/0.5);
  optimizer.Step(0.1);
  // w * (1 - 0.1 * 0.5) - 0.1 * sign(gradient): both moments are the gradient's once unbiased.
  EXPECT_NEAR(weights[0].values[0], 0.95 - 0.1, 1e-5);
  EXPECT_NEAR(weights[0].values[1], -1.9 + 0.1, 1e-5);
  EXPECT_NEAR(weights[0].values[2], 3.8, 1e-5);
}

TEST(AdamW, IsShownWhereItsMemoryIs) {
  Net net({.vocabulary = 7, .context = 3, .embedding = 4, .width = 8}, /*seed=*/1);
  AdamW optimizer(&net.weights(), /*weight_decay=*/0.5);
  optimizer.Step(0.1);
  const OptimizerView view = ViewOf(optimizer, net);
  ASSERT_EQ(view.parameters.size(), net.weights().size());
  for (size_t i = 0; i < view.parameters.size(); ++i) {
    const OptimizedParameter& parameter = view.parameters[i];
    EXPECT_EQ(parameter.name, net.weights()[i].name);
    EXPECT_EQ(parameter.learning_rate, 0.1);
    EXPECT_EQ(parameter.weight_decay, 0.5);
    EXPECT_EQ(parameter.steps, 1);
    EXPECT_EQ(parameter.second_moment.const_data_ptr(), optimizer.second_moment(i).data());
    EXPECT_EQ(parameter.second_moment.numel(), std::ssize(net.weights()[i].values));
  }
}

TEST(Train, FollowsTheScheduleAndLowersTheLoss) {
  const Recipe recipe{.steps = 60,
                      .warmup_steps = 10,
                      .decay_steps = 20,
                      .peak_learning_rate = 1e-2,
                      .weight_decay = 0.1,
                      .batch = 32,
                      .seed = 1};
  std::vector<uint8_t> text(400);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<uint8_t>(i % 7);
  Net net({.vocabulary = 7, .context = 3, .embedding = 4, .width = 8}, /*seed=*/1);
  std::vector<StepInfo> seen;
  AdamW optimizer(&net.weights(), recipe.weight_decay);
  Train(net, optimizer, text, recipe, [&](const StepInfo& info) {
    seen.push_back(info);
    return true;
  });
  ASSERT_EQ(seen.size(), 60u);
  EXPECT_DOUBLE_EQ(seen[0].learning_rate.value(), 1e-3);
  EXPECT_DOUBLE_EQ(seen[9].learning_rate.value(), 1e-2);
  EXPECT_DOUBLE_EQ(seen[39].learning_rate.value(), 1e-2);
  EXPECT_DOUBLE_EQ(seen[59].learning_rate.value(), 1e-2 / 20);
  EXPECT_EQ(seen[59].step, 60);
  EXPECT_EQ(seen[59].tokens, 60 * 32);
  EXPECT_LT(*seen[59].loss, 0.5 * *seen[0].loss);

  int64_t steps = 0;
  Train(net, optimizer, text, recipe, [&](const StepInfo&) { return ++steps < 5; });
  EXPECT_EQ(steps, 5);
}

}  // namespace functional_net_test
}  // namespace ptqwatch::examples
