#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "ATen/ops/ones.h"
#include "monitor/trainer_side.h"
#include "ptqwatch/function_subject.h"
#include "support/fake_clock.h"

namespace ptqwatch::internal {
namespace monitor_stall_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A model whose copy takes some time.
class LargeModel final : public Subject {
 public:
  LargeModel(testing::FakeClock& clock, milliseconds copy) : clock_(clock), copy_(copy) {}
  std::vector<NamedTensor> LiveTensors() const override {
    clock_.Advance(copy_);
    return {{"w", weight_}};
  }
  absl::Status BuildReplica() override { return absl::OkStatus(); }
  std::vector<NamedTensor> ReplicaTensors() const override { return {}; }
  LossValues ReplicaLosses(const Batch&) override { return {}; }
  const std::vector<Batch>& probe() const override { return none_; }
  const std::vector<Batch>& calibration() const override { return none_; }

 private:
  testing::FakeClock& clock_;
  const milliseconds copy_;
  const at::Tensor weight_ = at::ones({4});
  const std::vector<Batch> none_;
};

struct TrainerSideTest : ::testing::Test {
  void Watch(milliseconds copy, std::optional<double> duty_cycle = {}) {
    MonitorOptions options{
        .schedule = {.every = 1}, .max_overhead = 0.02, .duty_cycle = duty_cycle};
    options.clock = &clock;
    model = std::make_unique<LargeModel>(clock, copy);
    const TensorTable table = *MakeTensorTable(model->LiveTensors());
    slot.emplace(&page.slot, MakeSlotTensors(table));
    filler.emplace(table, &*slot, *DeviceStream::Create(at::kCPU, at::kCPU));
    trainer.emplace(&page, model.get(), &*filler, TrainerOptions(options), [] {});
  }
  // Steps of a second each, whose snapshots are loaded at once.
  void Train(int64_t steps) {
    for (int64_t i = 0; i < steps; ++i) {
      clock.Advance(seconds(1));
      trainer->OnStep({.step = ++step, .learning_rate = 1});
      if (page.slot.BeginLoading()) page.slot.Release();
    }
  }
  int64_t Count(SnapshotResult result) {
    MonitorStatus status;
    page.board.AddTo(status, 0, 0);
    return status.snapshots[static_cast<size_t>(result)];
  }

  testing::FakeClock clock;
  Page page{/*every=*/1, /*stretch=*/0};
  std::unique_ptr<LargeModel> model;
  std::optional<Slot> slot;
  std::optional<SlotFiller> filler;
  std::optional<TrainerSide> trainer;
  int64_t step = 0;
};

TEST_F(TrainerSideTest, CopiesOfALargeModelKeepToTheirShareOfTheTime) {
  Watch(milliseconds(200));
  Train(30);  // one in ten seconds
  EXPECT_EQ(Count(SnapshotResult::kTaken), 3);
  EXPECT_EQ(Count(SnapshotResult::kSkippedResting), 27);
  page.switches.requests = 1;
  Train(1);
  EXPECT_EQ(Count(SnapshotResult::kTaken), 4) << "asked for";
}

TEST_F(TrainerSideTest, UnnoticeableCopiesDoNot) {
  Watch(milliseconds(40));
  Train(10);
  EXPECT_EQ(Count(SnapshotResult::kTaken), 10);
}

TEST_F(TrainerSideTest, NorDoThoseOfAMonitorThatWasToldItsShare) {
  Watch(milliseconds(200), 0.5);
  Train(10);
  EXPECT_EQ(Count(SnapshotResult::kTaken), 10);
}

}  // namespace monitor_stall_test
}  // namespace ptqwatch::internal
