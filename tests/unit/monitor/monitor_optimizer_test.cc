#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "ptqwatch/function_subject.h"
#include "snapshot/device_stream.h"
#include "staging/shared_optimizer.h"

namespace ptqwatch::internal {
namespace monitor_optimizer_test {

using ::testing::HasSubstr;

// An optimizer in a trainer, and as a worker sees it through a second mapping of the memory.
struct SharedOptimizerTest : ::testing::Test {
  SharedOptimizerTest() {
    const at::Tensor tied = at::ones({4, 5});
    live = {{"w", tied, true}, {"tied", tied, true}, {"u", at::ones({3}), true}};
    view = {.kind = OptimizerKind::kAdamW,
            .beta1 = 0.8,
            .beta2 = 0.95,
            .epsilon = 1e-7,
            .parameters = {{"u", 0.2, 0.02, 4, at::full({3}, 3.0)},
                           {"tied", 0.1, 0.01, 3, at::full({4, 5}, 2.0)}}};
    subject = MakeFunctionSubject({.live = live, .optimizer = [this] {
                                     if (throws) throw std::runtime_error("no optimizer today");
                                     return passes ? std::optional(view) : std::nullopt;
                                   }});
    table = *MakeTensorTable(live);
  }
  // False without an optimizer.
  bool Share() {
    int64_t end = LayoutOf(table, live).second;
    const OptimizerLayout layout = SharedOptimizer::Place(read, table, end).value();
    memory.emplace(SharedMemory::Make(end, /*manifest=*/"", /*every=*/1, /*stretch=*/0).value());
    trainer = SharedOptimizer::In(*memory, layout);
    mapped.emplace(SharedMemory::Map(dup(memory->file())).value());
    worker = SharedOptimizer::In(*mapped, layout);
    if (trainer) staging = trainer->MakeStaging(read, table, stream).value();
    return trainer && worker;
  }
  // The optimizer of a snapshot, as the worker sees it.
  std::optional<OptimizerView> Snapshot() {
    OptimizerState state;
    staging.Fill(stream, state);
    trainer->Write(state);
    return worker->Read();
  }

  std::vector<NamedTensor> live;
  OptimizerView view;
  bool passes = true;
  bool throws = false;
  std::unique_ptr<Subject> subject;
  const OptimizerStaging::Read read = [this] { return subject->Optimizer(); };
  TensorTable table;
  CpuStream stream;
  std::optional<SharedMemory> memory;
  std::optional<SharedMemory> mapped;
  std::optional<SharedOptimizer> trainer;
  std::optional<SharedOptimizer> worker;
  OptimizerStaging staging;
};

TEST_F(SharedOptimizerTest, IsTheTrainersOfTheSnapshot) {
  ASSERT_TRUE(Share());
  ASSERT_TRUE(worker->Read());  // as the trainer has made it
  view.parameters[0].learning_rate = 0.3;
  view.parameters[0].steps = 5;
  view.parameters[0].second_moment.fill_(7);
  const std::optional<OptimizerView> seen = Snapshot();
  view.parameters[0].second_moment.fill_(8);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->kind, OptimizerKind::kAdamW);
  EXPECT_EQ(seen->beta1, 0.8);
  EXPECT_EQ(seen->beta2, 0.95);
  EXPECT_EQ(seen->epsilon, 1e-7);
  EXPECT_EQ(seen->unavailable, "");
  ASSERT_EQ(seen->parameters.size(), 2u);
  EXPECT_EQ(seen->parameters[0].name, "w");
  EXPECT_EQ(seen->parameters[0].weight_decay, 0.01);
  EXPECT_TRUE(at::equal(seen->parameters[0].second_moment, at::full({4, 5}, 2.0)));
  EXPECT_EQ(seen->parameters[1].name, "u");
  EXPECT_EQ(seen->parameters[1].learning_rate, 0.3);
  EXPECT_EQ(seen->parameters[1].steps, 5);
  EXPECT_TRUE(at::equal(seen->parameters[1].second_moment, at::full({3}, 7.0)));
}

TEST_F(SharedOptimizerTest, HasMomentsOnceThereAreSome) {
  const at::Tensor moment = view.parameters[0].second_moment;
  view.parameters[0].second_moment = at::Tensor();
  ASSERT_TRUE(Share());
  EXPECT_FALSE(worker->Read()->parameters[1].second_moment.defined());
  view.parameters[0].second_moment = moment;
  EXPECT_TRUE(at::equal(Snapshot()->parameters[1].second_moment, moment));
}

TEST_F(SharedOptimizerTest, NeedsNoMomentsForSgd) {
  view = {.kind = OptimizerKind::kSgd,
          .momentum = 0.9,
          .dampening = 0.1,
          .nesterov = true,
          .parameters = {{"u", 0.2, 0.02, 4}},
          .unavailable = "an unusual rule"};
  ASSERT_TRUE(Share());
  const std::optional<OptimizerView> seen = Snapshot();
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->kind, OptimizerKind::kSgd);
  EXPECT_EQ(seen->momentum, 0.9);
  EXPECT_EQ(seen->dampening, 0.1);
  EXPECT_TRUE(seen->nesterov);
  EXPECT_EQ(seen->unavailable, "an unusual rule");
  ASSERT_EQ(seen->parameters.size(), 1u);
  EXPECT_EQ(seen->parameters[0].name, "u");
}

TEST_F(SharedOptimizerTest, SaysWhyItIsMissing) {
  ASSERT_TRUE(Share());
  throws = true;
  EXPECT_THAT(Snapshot()->unavailable, HasSubstr("no optimizer today"));
  throws = false;
  EXPECT_EQ(Snapshot()->unavailable, "");
  passes = false;
  EXPECT_FALSE(Snapshot());
}

TEST_F(SharedOptimizerTest, TakesNoMemoryWithoutAnOptimizer) {
  passes = false;
  int64_t end = 4096;
  EXPECT_EQ(SharedOptimizer::Place(read, table, end)->offset, 0);
  EXPECT_EQ(end, 4096);
  EXPECT_FALSE(Share());
}

TEST_F(SharedOptimizerTest, RefusesARuleThatCannotBe) {
  view.beta2 = 1.5;
  int64_t end = 4096;
  EXPECT_THAT(std::string(SharedOptimizer::Place(read, table, end).status().message()),
              HasSubstr("beta2 = 1.5"));
}

}  // namespace monitor_optimizer_test
}  // namespace ptqwatch::internal
