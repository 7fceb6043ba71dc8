#include "publish/status_board.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ptqwatch::internal {
namespace status_board_test {

TEST(StatusBoard, SaysNothingBeforeTheFirstStep) {
  TrainerBoard steps;
  StatusBoard board{&steps};
  const MonitorStatus status = board.Read(100, 0);
  EXPECT_FALSE(status.step);
  EXPECT_FALSE(status.overhead_ratio);
  EXPECT_FALSE(status.tokens);
  EXPECT_EQ(status.steps_total, 0);
  EXPECT_EQ(status.health, Health::kStarting);
}

TEST(StatusBoard, SaysHowSureItIsOfTheOverhead) {
  TrainerBoard steps;
  StatusBoard board{&steps};
  steps.OnStep({.step = 1}, LrPhase::kStable, 100);
  steps.OnSnapshot(SnapshotResult::kTaken, 1);
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
  TrainerBoard steps;
  StatusBoard board{&steps};
  steps.OnStep({.step = 1}, LrPhase::kStable, 0);
  for (int i = 1; i <= 6; ++i) board.AddLostSeconds(i % 2 == 0 ? 1 : -2, i);
  const MonitorStatus status = board.Read(6, 0);
  EXPECT_EQ(status.overhead_ratio, 0);
  EXPECT_EQ(status.overhead_low_ratio, 0);
  EXPECT_GT(*status.overhead_high_ratio, 0);
}

TEST(StatusBoard, SaysWhenTheClosureHangs) {
  TrainerBoard steps;
  StatusBoard board{&steps};
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
  TrainerBoard steps;
  StatusBoard board{&steps};
  board.SetHealth(Health::kOk);
  steps.OnSnapshot(SnapshotResult::kSkippedMismatch, 0);
  steps.OnSnapshot(SnapshotResult::kFailed, 0);
  EXPECT_EQ(board.Read(0, 0).health, Health::kOk);
  steps.OnSnapshot(SnapshotResult::kSkippedMismatch, 0);
  EXPECT_EQ(board.Read(0, 0).health, Health::kDegraded);
  steps.OnSnapshot(SnapshotResult::kTaken, 0);
  EXPECT_EQ(board.Read(0, 0).health, Health::kOk);
}

TEST(StatusBoard, KeepsTheReasonThatWasGiven) {
  TrainerBoard steps;
  StatusBoard board{&steps};
  board.SetHealth(Health::kDegraded, "no gradients today");
  EXPECT_EQ(board.Read(0, 0).health_reason, "no gradients today");
}

TEST(StatusBoard, HasTheStepsOfTheTrainer) {
  TrainerBoard steps;
  StatusBoard board{&steps};
  steps.OnStep({.step = 7}, LrPhase::kStable, 10);
  steps.OnSnapshot(SnapshotResult::kTaken, 0.5);
  const MonitorStatus status = board.Read(20, 0);
  EXPECT_EQ(status.step, 7);
  EXPECT_NEAR(*status.overhead_ratio, 0.05, 1e-12);
}

TEST(StatusBoard, CountsEventsByKind) {
  TrainerBoard steps;
  StatusBoard board{&steps};
  board.OnEvent(Event::Kind::kSlice);
  board.OnEvent(Event::Kind::kSlice);
  board.OnEvent(Event::Kind::kResumed);
  const MonitorStatus status = board.Read(20, 0);
  EXPECT_EQ(status.events[static_cast<size_t>(Event::Kind::kSlice)], 2);
  EXPECT_EQ(status.events[static_cast<size_t>(Event::Kind::kResumed)], 1);
  EXPECT_EQ(status.events[static_cast<size_t>(Event::Kind::kStopped)], 0);
}

TEST(StatusBoard, CountsDropsByExporterAndReason) {
  TrainerBoard steps;
  StatusBoard board{&steps};
  board.CountDrop("journal", "queue_full");
  board.CountDrop("journal", "queue_full");
  board.CountDrop("grpc", "slow");
  const MonitorStatus status = board.Read(0, 0);
  EXPECT_EQ(status.dropped_reports,
            (std::vector<DroppedReports>{{"grpc", "slow", 1}, {"journal", "queue_full", 2}}));
}

}  // namespace status_board_test
}  // namespace ptqwatch::internal
