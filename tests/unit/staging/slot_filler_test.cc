#include "staging/slot_filler.h"

#include <gmock/gmock.h>

#include <optional>
#include <thread>

#include "ATen/ops/arange.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"
#include "ptqwatch/function_subject.h"
#include "support/fake_clock.h"

namespace ptqwatch::internal {
namespace slot_filler_test {

using ::testing::HasSubstr;

struct SlotFillerTest : ::testing::Test {
  SlotFillerTest() {
    transposed = at::arange(6, at::kFloat).view({2, 3}).t();
    live = {{"w", at::ones({4, 5}), true}, {"t", transposed, true}, {"b", at::ones({1}), false}};
    Rebuild();
  }
  void Rebuild() {
    subject = MakeFunctionSubject({.live = live});
    if (filler) return;
    const TensorTable table = *MakeTensorTable(live);
    slot.emplace(&page, MakeSlotTensors(table));
    filler.emplace(table, &*slot, *DeviceStream::Create(at::kCPU, at::kCPU));
  }
  SnapshotResult Fill(int64_t step) {
    outcome = filler->TryFill(*subject, {.info = {.step = step}}, clock);
    return outcome.result;
  }
  at::Tensor transposed;
  std::vector<NamedTensor> live;
  std::unique_ptr<Subject> subject;
  SlotPage page;
  std::optional<Slot> slot;
  std::optional<SlotFiller> filler;
  testing::FakeClock clock;
  FillOutcome outcome;
};

TEST_F(SlotFillerTest, KeepsTheWeightsOfTheStepWhileTrainingGoesOn) {
  ASSERT_EQ(Fill(3), SnapshotResult::kTaken);
  live[0].tensor.fill_(9);
  const Snapshot* snapshot = slot->BeginLoading();
  ASSERT_NE(snapshot, nullptr);
  EXPECT_EQ(snapshot->header.info.step, 3);
  EXPECT_TRUE(at::equal(snapshot->tensors[0], at::ones({4, 5})));
  EXPECT_TRUE(at::equal(snapshot->tensors[1], transposed));
}

// As sharded and offloaded training leaves parameters between steps.
TEST_F(SlotFillerTest, TakesNoSnapshotOfTensorsWithoutMemory) {
  c10::StorageImpl& storage = *live[0].tensor.storage().unsafeGetStorageImpl();
  const size_t bytes = storage.nbytes();
  at::DataPtr data = storage.set_data_ptr(at::DataPtr(nullptr, at::kCPU));
  EXPECT_EQ(Fill(1), SnapshotResult::kSkippedMismatch) << "no pointer";
  storage.set_nbytes(0);
  EXPECT_EQ(Fill(2), SnapshotResult::kSkippedMismatch) << "no bytes";
  EXPECT_THAT(outcome.problem, HasSubstr("'w' has no memory"));
  storage.set_data_ptr(std::move(data));
  storage.set_nbytes(bytes - 1);
  EXPECT_EQ(Fill(3), SnapshotResult::kSkippedMismatch) << "a byte too few";
  storage.set_nbytes(bytes);
  EXPECT_EQ(Fill(4), SnapshotResult::kTaken);
}

TEST_F(SlotFillerTest, TimesTheCopyOnce) {
  class Slow final : public Subject {
   public:
    Slow(const Subject& model, testing::FakeClock& clock) : model_(model), clock_(clock) {}
    std::vector<NamedTensor> LiveTensors() const override {
      clock_.Advance(std::chrono::milliseconds(250));
      return model_.LiveTensors();
    }
    absl::Status BuildReplica() override { return absl::OkStatus(); }
    std::vector<NamedTensor> ReplicaTensors() const override { return {}; }
    LossValues ReplicaLosses(const Batch&) override { return {}; }
    const std::vector<Batch>& probe() const override { return model_.probe(); }
    const std::vector<Batch>& calibration() const override { return model_.calibration(); }

   private:
    const Subject& model_;
    testing::FakeClock& clock_;
  } slow(*subject, clock);
  const FillOutcome taken = filler->TryFill(slow, {}, clock);
  EXPECT_EQ(taken.result, SnapshotResult::kTaken);
  EXPECT_EQ(taken.stall_seconds, 0.25);
  EXPECT_EQ(slot->BeginLoading()->stall_seconds, 0.25);
  EXPECT_EQ(filler->TryFill(slow, {}, clock).stall_seconds, 0);
}

TEST_F(SlotFillerTest, SkipsUntilTheSlotIsFreeAgain) {
  ASSERT_EQ(Fill(1), SnapshotResult::kTaken);
  EXPECT_EQ(Fill(2), SnapshotResult::kSkippedBusy);
  ASSERT_NE(slot->BeginLoading(), nullptr);
  EXPECT_EQ(slot->BeginLoading(), nullptr);
  EXPECT_EQ(Fill(3), SnapshotResult::kSkippedBusy);
  page.Release();
  EXPECT_EQ(Fill(4), SnapshotResult::kTaken);
}

TEST_F(SlotFillerTest, SkipsAndNamesWhatChanged) {
  live[1].tensor = at::zeros({3, 3});
  Rebuild();
  EXPECT_EQ(Fill(1), SnapshotResult::kSkippedMismatch);
  EXPECT_THAT(outcome.problem, HasSubstr("'t'"));
  live[1] = {"other", transposed, true};
  Rebuild();
  EXPECT_EQ(Fill(2), SnapshotResult::kSkippedMismatch);
  EXPECT_THAT(outcome.problem, HasSubstr("'other'"));
  live.pop_back();
  live[1] = {"t", transposed, true};
  Rebuild();
  EXPECT_EQ(Fill(3), SnapshotResult::kSkippedMismatch);
  EXPECT_THAT(outcome.problem, HasSubstr("'b'"));
  EXPECT_TRUE(page.free());
}

TEST_F(SlotFillerTest, SkipsAPartThatHasMoved) {
  live[0].global_shape = {8, 5};
  live[0].offset = {4, 0};
  Rebuild();
  EXPECT_EQ(Fill(1), SnapshotResult::kSkippedMismatch);
  EXPECT_THAT(outcome.problem, HasSubstr("'w' is another part of the whole"));
}

TEST_F(SlotFillerTest, SkipsWhenATieCameApart) {
  live.push_back({"tied", live[0].tensor, true});
  filler.reset();
  Rebuild();
  EXPECT_EQ(Fill(1), SnapshotResult::kTaken);
  slot->BeginLoading();
  page.Release();
  live.back().tensor = at::ones({4, 5});
  Rebuild();
  EXPECT_EQ(Fill(2), SnapshotResult::kSkippedMismatch);
  EXPECT_THAT(outcome.problem, HasSubstr("'tied'"));
  EXPECT_EQ(live[0].tensor.use_count(), 1u + 1u);  // here and in the subject: nothing is kept
}

TEST_F(SlotFillerTest, DoesNotMakeTheLiveTensorsRequireAnything) {
  live[0].tensor.requires_grad_(true);
  Rebuild();
  ASSERT_EQ(Fill(1), SnapshotResult::kTaken);
  const Snapshot* snapshot = slot->BeginLoading();
  EXPECT_FALSE(snapshot->tensors[0].requires_grad());
}

TEST_F(SlotFillerTest, HandsWholeSnapshotsToAnotherThread) {
  std::atomic<bool> done{false};
  int64_t torn = 0;
  int64_t seen = 0;
  std::thread monitor([&] {
    while (!done.load() || !page.free()) {
      const Snapshot* snapshot = slot->BeginLoading();
      if (snapshot == nullptr) continue;
      const float expected = static_cast<float>(snapshot->header.info.step);
      const float* values = snapshot->tensors[0].const_data_ptr<float>();
      for (int i = 0; i < 20; ++i) torn += values[i] != expected;
      ++seen;
      page.Release();
    }
  });
  for (int64_t step = 1; step <= 2000; ++step) {
    live[0].tensor.fill_(static_cast<double>(step));
    Fill(step);
  }
  done = true;
  monitor.join();
  EXPECT_EQ(torn, 0);
  EXPECT_GT(seen, 0);
}

}  // namespace slot_filler_test
}  // namespace ptqwatch::internal
