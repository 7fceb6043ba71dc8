#include "notices/skip_notices.h"

#include <gmock/gmock.h>

namespace ptqwatch::internal {
namespace skip_notices_test {

using ::testing::HasSubstr;

struct SkipNoticesTest : ::testing::Test {
  void Add(SnapshotResult result, int64_t count) {
    status.snapshots[static_cast<size_t>(result)] += count;
  }
  MonitorStatus status;
  SkipNotices notices{{.every = 100}};
};

TEST_F(SkipNoticesTest, ExplainsTheFirstAndCountsTheOthers) {
  EXPECT_FALSE(notices.Skipped(status, 30, 10));
  status.every = 100;
  status.seconds_a_step = 0.1;
  Add(SnapshotResult::kSkippedBusy, 2);
  const auto first = notices.Skipped(status, 30, 10);
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->first);
  EXPECT_THAT(first->message, HasSubstr("2 due snapshots"));
  EXPECT_THAT(first->message, HasSubstr("schedule.every = 300 would leave time for all"));
  EXPECT_FALSE(notices.Skipped(status, 30, 10));
  Add(SnapshotResult::kSkippedBusy, 1);
  Add(SnapshotResult::kSkippedMismatch, 1);
  const auto second = notices.Skipped(status, 30, 10);
  ASSERT_TRUE(second);
  EXPECT_FALSE(second->first);
  EXPECT_EQ(second->message, "2 due snapshots were not taken");
}

TEST_F(SkipNoticesTest, LeavesOutWhatAnEarlierProcessHasAnnounced) {
  Add(SnapshotResult::kSkippedBusy, 2);
  Add(SnapshotResult::kSkippedResting, 1);
  SkipNotices second({.every = 100}, status);
  EXPECT_FALSE(second.Skipped(status, 30, 10));
  EXPECT_FALSE(second.Rested(status, /*spare=*/false, 0.02));
  Add(SnapshotResult::kFailed, 1);
  EXPECT_EQ(second.Skipped(status, 30, 10)->message.substr(0, 1), "1");
}

TEST_F(SkipNoticesTest, SaysOnceThatTheMonitorRests) {
  EXPECT_FALSE(notices.Rested(status, /*spare=*/false, 0.02));
  Add(SnapshotResult::kSkippedResting, 1);
  const auto first = notices.Rested(status, /*spare=*/false, 0.02);
  ASSERT_TRUE(first);
  EXPECT_THAT(first->message, HasSubstr("no core is spare"));
  EXPECT_THAT(first->message, HasSubstr("2.0 %"));
  Add(SnapshotResult::kSkippedResting, 1);
  EXPECT_FALSE(notices.Rested(status, /*spare=*/false, 0.02));
}

}  // namespace skip_notices_test
}  // namespace ptqwatch::internal
