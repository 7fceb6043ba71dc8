#include "publish/status_board.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ptqwatch::internal {
namespace status_board_test {

TEST(StatusBoard, SaysNothingBeforeTheFirstStep) {
  StatusBoard board;
  const MonitorStatus status = board.Read(100, 0);
  EXPECT_FALSE(status.step);
  EXPECT_FALSE(status.overhead_ratio);
  EXPECT_FALSE(status.tokens);
  EXPECT_EQ(status.steps_total, 0);
  EXPECT_EQ(status.health, Health::kStarting);
}

TEST(StatusBoard, ReadsBackWhatWasWritten) {
  StatusBoard board;
  board.OnStep({.step = 7, .learning_rate = 0.5, .tokens = 100, .loss = 2.5}, LrPhase::kWarmup, 10);
  board.OnStep({.step = 8, .learning_rate = 0.25}, LrPhase::kStable, 20);
  const MonitorStatus status = board.Read(25, 1700000000);
  EXPECT_EQ(status.step, 8);
  EXPECT_EQ(status.steps_total, 2);
  EXPECT_EQ(status.learning_rate, 0.25);
  EXPECT_EQ(status.last_step_unix_seconds, 1700000000 - 5);
  EXPECT_EQ(status.seconds_a_step, 10);
  EXPECT_EQ(status.lr_phase, LrPhase::kStable);
  EXPECT_FALSE(status.tokens);
  EXPECT_FALSE(status.training_loss_nats);
}

TEST(StatusBoard, TimesTheNewestSteps) {
  StatusBoard board;
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

TEST(StatusBoard, PutsStallsIntoTheirBuckets) {
  StatusBoard board;
  board.OnStep({.step = 1}, LrPhase::kStable, 100);
  board.OnSnapshot(SnapshotResult::kTaken, 5e-7);
  board.OnSnapshot(SnapshotResult::kTaken, 1e-6);
  board.OnSnapshot(SnapshotResult::kSkippedBusy, 0.02);
  board.OnSnapshot(SnapshotResult::kFailed, 99);
  const MonitorStatus status = board.Read(200, 0);
  EXPECT_EQ(status.stall_buckets[0], 2);
  EXPECT_EQ(status.stall_buckets[7], 1);
  EXPECT_EQ(status.stall_buckets[kStallBucketSeconds.size()], 1);
  EXPECT_EQ(status.snapshots[static_cast<size_t>(SnapshotResult::kTaken)], 2);
  EXPECT_EQ(status.snapshots[static_cast<size_t>(SnapshotResult::kSkippedBusy)], 1);
  EXPECT_NEAR(*status.overhead_ratio, 99.02 / 100, 1e-4);
}

TEST(StatusBoard, SaysHowSureItIsOfTheOverhead) {
  StatusBoard board;
  board.OnStep({.step = 1}, LrPhase::kStable, 100);
  board.OnSnapshot(SnapshotResult::kTaken, 1);
  const double lost[] = {2, 4, 3, 1, 5};
  for (int i = 0; i < 4; ++i) board.AddLostSeconds(lost[i], 200 + 100 * i);
  MonitorStatus status = board.Read(500, 0);
  EXPECT_EQ(status.overhead_comparisons, 4);
  EXPECT_FALSE(status.overhead_low_ratio);
  EXPECT_FALSE(status.overhead_high_ratio);
  EXPECT_NEAR(*status.overhead_ratio, 11.0 / 400, 1e-12);
  board.AddLostSeconds(lost[4], 600);
  status = board.Read(600, 0);
  EXPECT_EQ(status.overhead_comparisons, 5);
  EXPECT_NEAR(*status.overhead_ratio, 16.0 / 500, 1e-12);
  // The five have a variance of 2.5; t with 4 degrees of freedom is 2.776.
  const double margin = 2.776 * std::sqrt(5 * 2.5) / 500;
  EXPECT_NEAR(*status.overhead_low_ratio, 16.0 / 500 - margin, 1e-4);
  EXPECT_NEAR(*status.overhead_high_ratio, 16.0 / 500 + margin, 1e-4);
}

TEST(StatusBoard, LosesNoNegativeTime) {
  StatusBoard board;
  board.OnStep({.step = 1}, LrPhase::kStable, 0);
  for (int i = 1; i <= 6; ++i) board.AddLostSeconds(i % 2 == 0 ? 1 : -2, i);
  const MonitorStatus status = board.Read(6, 0);
  EXPECT_EQ(status.overhead_ratio, 0);
  EXPECT_EQ(status.overhead_low_ratio, 0);
  EXPECT_GT(*status.overhead_high_ratio, 0);
}

TEST(StatusBoard, SaysWhenTheClosureHangs) {
  StatusBoard board;
  board.SetHealth(Health::kOk);
  board.SetBusy(true, 1000);
  board.Alive(1100);
  EXPECT_EQ(board.Read(2000, 0).health, Health::kOk) << "ten times as long as before";
  const MonitorStatus hung = board.Read(2200, 0);
  EXPECT_EQ(hung.health, Health::kDegraded);
  EXPECT_EQ(hung.health_reason,
            "nothing was measured for 1100 s: the losses closure does not return");
  board.SetBusy(false, 2200);
  EXPECT_EQ(board.Read(1e6, 0).health, Health::kOk) << "nothing to do";
}

TEST(StatusBoard, SaysWhenNothingCanBeCopied) {
  StatusBoard board;
  board.SetHealth(Health::kOk);
  board.OnSnapshot(SnapshotResult::kSkippedMismatch, 0);
  board.OnSnapshot(SnapshotResult::kFailed, 0);
  EXPECT_EQ(board.Read(0, 0).health, Health::kOk);
  board.OnSnapshot(SnapshotResult::kSkippedMismatch, 0);
  EXPECT_EQ(board.Read(0, 0).health, Health::kDegraded);
  board.OnSnapshot(SnapshotResult::kTaken, 0);
  EXPECT_EQ(board.Read(0, 0).health, Health::kOk);
}

TEST(StatusBoard, KeepsTheReasonThatWasGiven) {
  StatusBoard board;
  board.SetHealth(Health::kDegraded, "no gradients today");
  EXPECT_EQ(board.Read(0, 0).health_reason, "no gradients today");
}

TEST(StatusBoard, CountsEventsByKind) {
  StatusBoard board;
  board.OnEvent(Event::Kind::kSlice);
  board.OnEvent(Event::Kind::kSlice);
  board.OnEvent(Event::Kind::kResumed);
  const MonitorStatus status = board.Read(20, 0);
  EXPECT_EQ(status.events[static_cast<size_t>(Event::Kind::kSlice)], 2);
  EXPECT_EQ(status.events[static_cast<size_t>(Event::Kind::kResumed)], 1);
  EXPECT_EQ(status.events[static_cast<size_t>(Event::Kind::kStopped)], 0);
}

TEST(StatusBoard, CountsDropsByExporterAndReason) {
  StatusBoard board;
  board.CountDrop("journal", "queue_full");
  board.CountDrop("journal", "queue_full");
  board.CountDrop("grpc", "slow");
  const MonitorStatus status = board.Read(0, 0);
  EXPECT_EQ(status.dropped_reports,
            (std::vector<DroppedReports>{{"grpc", "slow", 1}, {"journal", "queue_full", 2}}));
}

}  // namespace status_board_test
}  // namespace ptqwatch::internal
