#include "ranks/merge_status.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ptqwatch/run_source.h"

namespace ptqwatch::internal {
namespace merge_status_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<RankView> Views(int64_t ranks) {
  std::vector<RankView> views;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    RunStatus status;
    status.run.run_id = "run";
    status.process_id = 100 + rank;
    MonitorStatus& monitor = status.monitor;
    monitor.health = Health::kOk;
    monitor.step = 1000 + rank;
    monitor.steps_total = 1000 + rank;
    monitor.reports_total = 10;
    monitor.memory_bytes = 5;
    monitor.snapshots[0] = 7;
    monitor.events[2] = 1;
    monitor.stall_buckets[3] = 2;
    monitor.stall_seconds_total = 0.5;
    monitor.overhead_ratio = 0.01 * static_cast<double>(rank);
    monitor.dropped_reports = {{"journal", rank == 0 ? "full" : "slow", 1}};
    views.push_back({.rank = rank, .status = status, .snapshot_step = 900});
  }
  return views;
}

TEST(MergeStatus, AddsCountersButNotSteps) {
  const RunStatus merged = MergeStatus(Views(3));
  EXPECT_EQ(merged.run.run_id, "run");
  EXPECT_EQ(merged.process_id, 100);
  const MonitorStatus& monitor = merged.monitor;
  EXPECT_EQ(monitor.health, Health::kOk);
  EXPECT_EQ(monitor.step, 1002);
  EXPECT_EQ(monitor.steps_total, 1002);
  EXPECT_EQ(monitor.reports_total, 30);
  EXPECT_EQ(monitor.memory_bytes, 15);
  EXPECT_EQ(monitor.snapshots[0], 21);
  EXPECT_EQ(monitor.events[2], 3);
  EXPECT_EQ(monitor.stall_buckets[3], 6);
  EXPECT_EQ(monitor.stall_seconds_total, 1.5);
  EXPECT_EQ(monitor.overhead_ratio, 0.02);
  EXPECT_THAT(monitor.dropped_reports, ElementsAre(DroppedReports{"journal", "full", 1},
                                                   DroppedReports{"journal", "slow", 2}));
  ASSERT_EQ(monitor.ranks.size(), 3u);
  EXPECT_EQ(
      monitor.ranks[2],
      (RankStatus{.rank = 2, .health = Health::kOk, .snapshot_step = 900, .reports_total = 10}));
}

TEST(MergeStatus, NamesTheRanksThatAreNotHealthy) {
  std::vector<RankView> views = Views(8);
  views[0].status->monitor.health = Health::kSilent;
  views[0].status->monitor.health_reason = "no sign of life for 20 s";
  views[2].status.reset();
  views[3].status->monitor.health = Health::kStopped;
  views[5].status->monitor.health = Health::kInert;
  const RunStatus merged = MergeStatus(views);
  EXPECT_EQ(merged.monitor.health, Health::kDegraded);
  EXPECT_THAT(merged.monitor.health_reason,
              AllOf(HasSubstr("rank 0: no sign of life for 20 s"), HasSubstr("rank 2: "),
                    HasSubstr("rank 3: stopped"), HasSubstr("1 more"), Not(HasSubstr("rank 5"))));
  EXPECT_EQ(merged.process_id, 101);  // rank 0 does not run
}

TEST(MergeStatus, IsOverOnceAllRanksAre) {
  std::vector<RankView> views = Views(3);
  for (RankView& view : views) view.status->monitor.health = Health::kStopped;
  EXPECT_EQ(MergeStatus(views).monitor.health, Health::kStopped);
  EXPECT_EQ(MergeStatus(views).monitor.health_reason, "");
  views[1].status->monitor.health = Health::kSilent;  // killed
  EXPECT_EQ(MergeStatus(views).monitor.health, Health::kStopped);
  views[1].status->monitor.health = Health::kDegraded;
  EXPECT_EQ(MergeStatus(views).monitor.health, Health::kDegraded);
  for (RankView& view : views) view.status->monitor.health = Health::kInert;
  EXPECT_EQ(MergeStatus(views).monitor.health, Health::kInert);
  for (RankView& view : views) view.status->monitor.health = Health::kSilent;
  EXPECT_EQ(MergeStatus(views).monitor.health, Health::kSilent);
  for (RankView& view : views) view.status->monitor.health = Health::kStarting;
  EXPECT_EQ(MergeStatus(views).monitor.health, Health::kStarting);
}

// MergedSeries leaves the reports of such ranks out, which nothing else would say.
TEST(MergeStatus, NamesTheRanksThatMeasureSomethingElse) {
  std::vector<RankView> views = Views(4);
  for (RankView& view : views) view.status->run.fingerprint = "f0";
  EXPECT_EQ(MergeStatus(views).monitor.health, Health::kOk);
  views[1].status->run.fingerprint = "f1";
  views[2].status->run.fingerprint = "f2";
  views[2].status->monitor.health = Health::kDegraded;
  views[2].status->monitor.health_reason = "short of memory";
  views[3].status->run.fingerprint = "";  // it is inert, or starting
  MonitorStatus monitor = MergeStatus(views).monitor;
  EXPECT_EQ(monitor.health, Health::kDegraded);
  EXPECT_EQ(monitor.ranks[1].health, Health::kDegraded);
  EXPECT_THAT(monitor.health_reason,
              AllOf(HasSubstr("rank 1: its model, batches, quantizers, options or seed are not "
                              "those of rank 0 (fingerprint f1, not f0)"),
                    HasSubstr("rank 2: short of memory; its model"),
                    HasSubstr(": what it measures is left out"), Not(HasSubstr("rank 3"))));
  views[1].status->run.run_id = "other";
  EXPECT_THAT(MergeStatus(views).monitor.ranks[1].health_reason,
              HasSubstr("it is of run other, and rank 0 of run: what it measures is left out"));
  views[1].status->monitor.health = Health::kStopped;  // it is left over
  EXPECT_EQ(MergeStatus(views).monitor.ranks[1].health_reason, "");
  views[1].status->run.run_id = "run";
  views[1].status->monitor.health = Health::kOk;
  // Rank 0 has not come as far as the others: they are of a newer attempt.
  for (RankView& view : views) ++view.status->run.attempt;
  views[0].status->run.attempt = 1;
  EXPECT_EQ(MergeStatus(views).monitor.ranks[1].health, Health::kOk);
  // After the end the reason is still there.
  for (RankView& view : views) {
    view.status->run.attempt = 1;
    view.status->monitor.health = Health::kStopped;
  }
  monitor = MergeStatus(views).monitor;
  EXPECT_EQ(monitor.health, Health::kStopped);
  EXPECT_EQ(monitor.ranks[1].health, Health::kStopped);
  EXPECT_THAT(monitor.ranks[1].health_reason, HasSubstr("fingerprint f1"));
}

TEST(MergeStatus, KnowsNothingWithoutAStatusFile) {
  std::vector<RankView> views = {{.rank = 0, .status = {}, .snapshot_step = 100}};
  const RunStatus merged = MergeStatus(views);
  EXPECT_EQ(merged.monitor.health, Health::kDegraded);
  EXPECT_EQ(merged.monitor.ranks.at(0).snapshot_step, 100);
  EXPECT_TRUE(MergeStatus({}).monitor.ranks.empty());
}

}  // namespace merge_status_test
}  // namespace ptqwatch::internal
