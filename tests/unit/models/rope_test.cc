#include "models/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/TensorOperators.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/tensor.h"

namespace ptqwatch::internal {
namespace rope_test {

at::Tensor RandomHeads(std::vector<int64_t> shape) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(uint64_t{3}));
}

// The frequency of pair `i`, from the angle of position 1.
double Frequency(const RopeConfig& rope, int64_t i) {
  const RopeTables tables = MakeRopeTables(rope, 2);
  return std::atan2(tables.sine[1][i].item<double>(), tables.cosine[1][i].item<double>());
}

TEST(RopeTest, AnglesArePositionsTimesFrequencies) {
  const RopeTables tables = MakeRopeTables({.dims = 6, .theta = 100}, 5);
  for (int64_t position = 0; position < 5; ++position) {
    for (int64_t i = 0; i < 6; ++i) {
      const double angle =
          static_cast<double>(position) * std::pow(100.0, -static_cast<double>(i % 3) / 3);
      EXPECT_NEAR(tables.cosine[position][i].item<double>(), std::cos(angle), 1e-6);
      EXPECT_NEAR(tables.sine[position][i].item<double>(), std::sin(angle), 1e-6);
    }
  }
}

TEST(RopeTest, LinearScalingDividesFrequencies) {
  const RopeConfig rope = {.dims = 4, .theta = 100, .scaling = RopeScaling::kLinear, .factor = 4};
  EXPECT_NEAR(Frequency(rope, 0), 1.0 / 4, 1e-6);
  EXPECT_NEAR(Frequency(rope, 1), 0.1 / 4, 1e-6);
}

TEST(RopeTest, Llama3ScalesSlowWavesAndBlendsThoseInBetween) {
  const RopeConfig rope = {.dims = 8,
                           .theta = 1e4,
                           .scaling = RopeScaling::kLlama3,
                           .factor = 8,
                           .low_freq_factor = 1,
                           .high_freq_factor = 4,
                           .original_context = 200};
  EXPECT_NEAR(Frequency(rope, 0), 1.0, 1e-6);  // 200 positions hold 32 waves
  EXPECT_NEAR(Frequency(rope, 3), 1e-3 / 8, 1e-8);
  // 200 positions hold 3.18 waves of frequency 0.1.
  const double blend = (200 * 0.1 / (2 * std::numbers::pi) - 1) / 3;
  EXPECT_NEAR(Frequency(rope, 1), (1 - blend) * 0.1 / 8 + blend * 0.1, 1e-6);
}

TEST(RopeTest, YarnSlowsPairsThatTurnSeldomAndBlendsThoseInBetween) {
  RopeConfig rope = {.dims = 8,
                     .theta = 1e4,
                     .scaling = RopeScaling::kYarn,
                     .factor = 8,
                     .original_context = 200,
                     .beta_fast = 16,
                     .beta_slow = 1,
                     .attention_factor = 1.25};
  // Pairs turn 31.8, 3.18, 0.318 and 0.0318 times: 0.298 and 1.50 would turn 16 times and once.
  EXPECT_NEAR(Frequency(rope, 0), 1.0, 1e-6);
  EXPECT_NEAR(Frequency(rope, 1), 0.5 * 0.1 / 8 + 0.5 * 0.1, 1e-6);  // between 0 and 2
  EXPECT_NEAR(Frequency(rope, 2), 0.01 / 8, 1e-7);
  EXPECT_NEAR(Frequency(rope, 3), 1e-3 / 8, 1e-8);
  EXPECT_NEAR(MakeRopeTables(rope, 2).cosine[0][3].item<double>(), 1.25, 1e-6);
  rope.truncate = false;  // between 0.298 and 1.50
  const auto pair = [](double turns) {
    return 8 * std::log(200 / (turns * 2 * std::numbers::pi)) / (2 * std::log(1e4));
  };
  const double slow = (1 - pair(16)) / (pair(1) - pair(16));
  EXPECT_NEAR(Frequency(rope, 0), 1.0, 1e-6);
  EXPECT_NEAR(Frequency(rope, 1), slow * 0.1 / 8 + (1 - slow) * 0.1, 1e-6);
  EXPECT_NEAR(Frequency(rope, 2), 0.01 / 8, 1e-7);
}

TEST(RopeTest, LongRopeHasFactorsForSequencesBeyondTheOriginalContext) {
  const RopeConfig rope = {.dims = 4,
                           .theta = 100,
                           .scaling = RopeScaling::kLongRope,
                           .original_context = 6,
                           .attention_factor = 1.5,
                           .short_factors = {1, 2},
                           .long_factors = {4, 8}};
  EXPECT_NEAR(Frequency(rope, 0), 1.0, 1e-6);
  EXPECT_NEAR(Frequency(rope, 1), 0.1 / 2, 1e-6);
  const RopeTables within = MakeRopeTables(rope, 6), beyond = MakeRopeTables(rope, 7);
  EXPECT_NEAR(within.sine[1][1].item<double>(), 1.5 * std::sin(0.1 / 2), 1e-6);
  EXPECT_NEAR(beyond.sine[1][1].item<double>(), 1.5 * std::sin(0.1 / 8), 1e-6);
  EXPECT_NEAR(beyond.cosine[1][0].item<double>(), 1.5 * std::cos(1.0 / 4), 1e-6);
}

// The embedding is relative: shifting both positions does not change a product.
TEST(RopeTest, ProductsDependOnDistanceAlone) {
  const RopeTables tables = MakeRopeTables({.dims = 8, .theta = 50}, 12);
  const at::Tensor heads = RandomHeads({1, 2, 1, 8}).expand({1, 2, 12, 8});
  const at::Tensor rotated = Rotate(heads, tables)[0];
  const at::Tensor products = rotated[0].matmul(rotated[1].t());
  for (int64_t i = 1; i < 12; ++i) {
    for (int64_t j = 1; j < 12; ++j) {
      EXPECT_NEAR(products[i][j].item<float>(), products[i - 1][j - 1].item<float>(), 1e-5);
    }
  }
  EXPECT_GT((products[0][0] - products[0][1]).abs().item<float>(), 1e-2);
}

TEST(RopeTest, PairsCanBeNeighbours) {
  const at::Tensor heads = RandomHeads({1, 1, 5, 8});
  const std::vector<int64_t> order = {0, 2, 4, 1, 3, 5, 6, 7};  // of the six that turn
  const at::Tensor index = at::tensor(order);
  const at::Tensor halves =
      Rotate(heads.index_select(-1, index), MakeRopeTables({.dims = 6, .theta = 50}, 5));
  const at::Tensor neighbours =
      Rotate(heads, MakeRopeTables({.dims = 6, .interleaved = true, .theta = 50}, 5));
  EXPECT_TRUE(neighbours.index_select(-1, index).equal(halves));
}

TEST(RopeTest, LeavesTheRestOfAHeadAlone) {
  const at::Tensor heads = RandomHeads({2, 3, 5, 8});
  // Five dimensions make three pairs, as in transformers.
  const at::Tensor rotated = Rotate(heads, MakeRopeTables({.dims = 5, .theta = 50}, 5));
  EXPECT_TRUE(rotated.narrow(-1, 6, 2).equal(heads.narrow(-1, 6, 2)));
  EXPECT_FALSE(rotated.narrow(-1, 5, 1).equal(heads.narrow(-1, 5, 1)));
  EXPECT_TRUE(Rotate(heads, MakeRopeTables({.dims = 0, .theta = 50}, 5)).equal(heads));
}

}  // namespace rope_test
}  // namespace ptqwatch::internal
