#include "snapshot/generator_guard.h"

#include <gmock/gmock.h>

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/Context.h"
#include "ATen/ops/bernoulli.h"
#include "ATen/ops/dropout.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "ATen/ops/multinomial.h"
#include "ATen/ops/normal.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/rand.h"
#include "ATen/ops/rand_like.h"
#include "ATen/ops/randint.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/randperm.h"
#include "ATen/ops/rrelu.h"
#include "ATen/ops/scaled_dot_product_attention.h"
#include "snapshot/own_draws.h"

namespace ptqwatch::internal {
namespace generator_guard_test {

std::string State() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard<std::mutex> lock(generator.mutex());
  const at::Tensor state = generator.get_state();
  return {static_cast<const char*>(state.const_data_ptr()), state.nbytes()};
}

float Draw() { return at::rand({1}).item<float>(); }

float DrawElsewhere() {
  float drawn = 0;
  std::thread([&] { drawn = Draw(); }).join();
  return drawn;
}

// The first numbers after seeding with `seed`.
std::vector<float> Numbers(uint64_t seed, int count) {
  at::manual_seed(seed);
  std::vector<float> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(Draw());
  return numbers;
}

TEST(OwnDraws, IsAvailable) { EXPECT_TRUE(OwnDraws::Available().ok()) << OwnDraws::Available(); }

TEST(OwnDraws, KeepsEveryKindOfDrawAwayFromTheDefaultGenerator) {
  const std::vector<std::function<void()>> kinds = {
      [] { at::rand({3}); },
      [] { at::randn({20}); },
      [] { at::rand_like(at::ones({2})); },
      [] { at::randint(5, {3}); },
      [] { at::randperm(7); },
      [] { at::normal(at::ones({2}), 1.0); },
      [] { at::bernoulli(at::full({4}, 0.5)); },
      [] { at::multinomial(at::ones({4}), 2); },
      [] { at::dropout(at::ones({4}), 0.5, /*train=*/true); },
      [] { at::rrelu(at::ones({4}), 0.1, 0.3, /*training=*/true); },
      [] { at::empty({4}).uniform_(0, 1, at::detail::getDefaultCPUGenerator()); },
      [] {
        const at::Tensor x = at::ones({1, 1, 4, 8});
        at::scaled_dot_product_attention(x, x, x, {}, /*dropout_p=*/0.5);
      },
  };
  for (size_t i = 0; i < kinds.size(); ++i) {
    const std::string before = State();
    const OwnDraws draws;
    EXPECT_FALSE(draws.drew());
    kinds[i]();
    EXPECT_TRUE(draws.drew()) << i;
    EXPECT_TRUE(State() == before) << i;
  }
}

TEST(OwnDraws, DoesNotMindWhatDrawsNothing) {
  const OwnDraws draws;
  at::dropout(at::ones({4}), 0.5, /*train=*/false);
  at::rrelu(at::ones({4}), 0.1, 0.3, /*training=*/false);
  const at::Tensor x = at::ones({1, 1, 4, 8});
  at::scaled_dot_product_attention(x, x, x);
  EXPECT_FALSE(draws.drew());
}

TEST(OwnDraws, LeavesTheCallersOwnGeneratorsAlone) {
  at::Generator mine = at::detail::createCPUGenerator(5);
  const at::Tensor expected = at::rand({3}, mine);
  mine.set_current_seed(5);
  const OwnDraws draws;
  EXPECT_TRUE(at::equal(at::rand({3}, mine), expected));
  EXPECT_FALSE(draws.drew());
}

TEST(OwnDraws, EndsWithItsScopeAndOnItsThread) {
  at::manual_seed(1);
  {
    const OwnDraws outer;
    {
      const OwnDraws inner;
      Draw();
    }
    EXPECT_TRUE(outer.drew());
    const std::string before = State();
    Draw();
    EXPECT_TRUE(State() == before);
    DrawElsewhere();
    EXPECT_FALSE(State() == before);
  }
  const std::string before = State();
  Draw();
  EXPECT_FALSE(State() == before);
}

TEST(GeneratorGuard, DrawsWhatWouldHaveBeenDrawnAndLeavesNoTrace) {
  const std::vector<float> numbers = Numbers(3, 4);
  at::manual_seed(3);
  {
    const GeneratorGuard guard;
    EXPECT_EQ(Draw(), numbers[0]);
    EXPECT_EQ(Draw(), numbers[1]);
    EXPECT_FALSE(guard.Seeded());
  }
  EXPECT_EQ(Draw(), numbers[0]);
  EXPECT_EQ(Draw(), numbers[1]);
}

TEST(GeneratorGuard, WhatAnotherThreadDrawsIsNeitherUndoneNorShifted) {
  const std::vector<float> numbers = Numbers(3, 2000);
  at::manual_seed(3);
  std::vector<float> drawn;
  {
    const GeneratorGuard guard;
    for (int i = 0; i < 1500; ++i) {
      at::randn({16});
      drawn.push_back(DrawElsewhere());
    }
    EXPECT_TRUE(guard.drew());
    EXPECT_FALSE(guard.Seeded());
  }
  while (drawn.size() < numbers.size()) drawn.push_back(Draw());
  EXPECT_EQ(drawn, numbers);
}

TEST(GeneratorGuard, SeedingIsFollowedAndPutBack) {
  const std::vector<float> seeded = Numbers(42, 3);
  // With another seed, and with the same one.
  for (const uint64_t seed : {7u, 42u}) {
    at::manual_seed(seed);
    Draw();
    const std::string before = State();
    {
      const GeneratorGuard guard;
      Draw();
      at::manual_seed(42);
      EXPECT_EQ(Draw(), seeded[0]);
      EXPECT_EQ(Draw(), seeded[1]);
      EXPECT_TRUE(guard.Seeded());
    }
    EXPECT_TRUE(State() == before) << seed;
  }
}

TEST(GeneratorGuard, AnEarlierStateIsPutBack) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  at::manual_seed(1);
  const at::Tensor earlier = generator.get_state();
  at::rand({1000});
  const std::string before = State();
  {
    const GeneratorGuard guard;
    generator.set_state(earlier);
    DrawElsewhere();
    EXPECT_TRUE(guard.Seeded());
  }
  EXPECT_TRUE(State() == before);
}

}  // namespace generator_guard_test
}  // namespace ptqwatch::internal
