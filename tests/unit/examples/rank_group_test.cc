// Ranks on threads of one process, each with files of its own as processes have them.

#include "rank_group.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "program.h"
#include "support/temp_dir.h"

namespace ptqwatch::examples {
namespace {

using ptqwatch::testing::TempDir;
using ::testing::HasSubstr;

// Parameters of different shapes whose gradients are `value`.
std::vector<at::Tensor> Parameters(float value) {
  std::vector<at::Tensor> parameters = {at::zeros({2, 3}), at::zeros({4})};
  for (at::Tensor& parameter : parameters) {
    parameter.set_requires_grad(true);
    parameter.mutable_grad() = at::full(parameter.sizes(), value);
  }
  return parameters;
}

void OnRanks(int64_t ranks, const std::function<void(int64_t)>& body) {
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

TEST(RankGroup, AveragesToTheSameBitsOnEveryRank) {
  const TempDir folder;
  // Sums that depend on their order.
  const std::vector<float> values = {1e8F, 1.0F, -1e8F, 0.3F};
  const float mean = (((1e8F + 1.0F) + -1e8F) + 0.3F) / 4;
  std::vector<std::vector<at::Tensor>> parameters(4);
  OnRanks(4, [&](int64_t rank) {
    RankGroup group({.store = folder.File("store"), .rank = rank, .ranks = 4});
    // More rounds than one file has.
    for (int round = 0; round < 130; ++round) {
      parameters[rank] = Parameters(values[rank]);
      group.AverageGradients(parameters[rank]);
    }
  });
  for (const auto& of_rank : parameters) {
    for (const at::Tensor& parameter : of_rank) {
      EXPECT_TRUE(at::equal(parameter.grad(), at::full(parameter.sizes(), mean)));
    }
  }
}

TEST(RankGroup, LeavesGradientsOfOneRankAlone) {
  RankGroup group({.store = "/nowhere/store"});
  const std::vector<at::Tensor> parameters = Parameters(0.5F);
  group.AverageGradients(parameters);
  EXPECT_TRUE(at::equal(parameters[1].grad(), at::full({4}, 0.5F)));
}

TEST(RankGroup, NamesARankThatDoesNotCome) {
  const TempDir folder;
  RankGroup group({.store = folder.File("store"),
                   .rank = 0,
                   .ranks = 2,
                   .timeout = std::chrono::milliseconds(20)});
  try {
    group.AverageGradients(Parameters(1));
    FAIL() << "waited for nobody";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 has sent nothing"));
  }
}

TEST(RankGroup, StopsWaitingWhenTold) {
  const TempDir folder;
  RankGroup group(
      {.store = folder.File("store"), .rank = 0, .ranks = 2, .stopped = [] { return true; }});
  EXPECT_THROW(group.AverageGradients(Parameters(1)), Stopped);
}

TEST(RankGroup, RefusesTheStoreOfAnEarlierLaunch) {
  const TempDir folder;
  const auto launch = [&] {
    RankGroup group(
        {.store = folder.File("store"), .rank = 1, .ranks = 2, .stopped = [] { return true; }});
    group.AverageGradients(Parameters(1));
  };
  EXPECT_THROW(launch(), Stopped);
  EXPECT_THROW(launch(), UsageError);
}

}  // namespace
}  // namespace ptqwatch::examples
