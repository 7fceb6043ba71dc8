#include "handover/trainer_board.h"

#include <gtest/gtest.h>

namespace ptqwatch::internal {
namespace trainer_board_test {

TEST(TrainerBoard, ReadsBackWhatWasWritten) {
  TrainerBoard board;
  board.OnStep({.step = 7, .learning_rate = 0.5, .tokens = 100, .loss = 2.5}, LrPhase::kWarmup, 10);
  board.OnStep({.step = 8, .learning_rate = 0.25}, LrPhase::kStable, 20);
  MonitorStatus status;
  board.AddTo(status, 25, 1700000000);
  EXPECT_EQ(status.step, 8);
  EXPECT_EQ(status.steps_total, 2);
  EXPECT_EQ(status.learning_rate, 0.25);
  EXPECT_EQ(status.last_step_unix_seconds, 1700000000 - 5);
  EXPECT_EQ(status.seconds_a_step, 10);
  EXPECT_EQ(status.lr_phase, LrPhase::kStable);
  EXPECT_FALSE(status.tokens);
  EXPECT_FALSE(status.training_loss_nats);
}

TEST(TrainerBoard, TimesTheNewestSteps) {
  TrainerBoard board;
  EXPECT_EQ(board.seconds_a_step(), 0);
  double now = 50;
  int64_t step = 0;
  const auto train = [&](int steps, double seconds) {
    for (int i = 0; i < steps; ++i) {
      board.OnStep({.step = ++step}, LrPhase::kStable, now += seconds);
    }
  };
  train(1, 7);
  EXPECT_EQ(board.seconds_a_step(), 0);
  train(999, 2);
  EXPECT_DOUBLE_EQ(board.seconds_a_step(), 2) << "all there are";
  train(9000, 2);
  train(2000, 0.5);
  EXPECT_DOUBLE_EQ(board.seconds_a_step(), 0.5) << "the slow ones do not count";
  train(500, 1);
  EXPECT_NEAR(board.seconds_a_step(), (1000 * 0.5 + 500) / 1500, 0.001);
}

TEST(TrainerBoard, PutsStallsIntoTheirBuckets) {
  TrainerBoard board;
  board.OnStep({.step = 1}, LrPhase::kStable, 100);
  board.OnSnapshot(SnapshotResult::kTaken, 5e-7);
  board.OnSnapshot(SnapshotResult::kTaken, 1e-6);
  board.OnSnapshot(SnapshotResult::kSkippedBusy, 0.02);
  board.OnSnapshot(SnapshotResult::kFailed, 99);
  MonitorStatus status;
  board.AddTo(status, 200, 0);
  EXPECT_EQ(status.stall_buckets[0], 2);
  EXPECT_EQ(status.stall_buckets[7], 1);
  EXPECT_EQ(status.stall_buckets[kStallBucketSeconds.size()], 1);
  EXPECT_EQ(status.snapshots[static_cast<size_t>(SnapshotResult::kTaken)], 2);
  EXPECT_EQ(status.snapshots[static_cast<size_t>(SnapshotResult::kSkippedBusy)], 1);
  EXPECT_NEAR(board.stall_seconds(), 99.02, 1e-4);
}

}  // namespace trainer_board_test
}  // namespace ptqwatch::internal
