#include "monitor/control_queue.h"

#include <gmock/gmock.h>

#include <atomic>

namespace ptqwatch::internal {
namespace control_queue_test {

SliceRequest Gptq3() { return {.method = QuantizationMethod::kGptq, .bits = 3}; }

TEST(ControlQueue, GivesCommandsInTheOrderTheyCame) {
  ControlQueue queue;
  EXPECT_TRUE(queue.Pause().ok());
  EXPECT_TRUE(queue.RequestSnapshot().ok());
  ASSERT_TRUE(queue.SetEvery(7).ok());
  const std::vector<Command> commands = queue.Drain();
  ASSERT_EQ(commands.size(), 3u);
  EXPECT_TRUE(std::get<SetPaused>(commands[0]).paused);
  EXPECT_TRUE(std::holds_alternative<TakeSnapshot>(commands[1]));
  EXPECT_EQ(std::get<SetInterval>(commands[2]).every, 7);
  EXPECT_TRUE(queue.Drain().empty());
}

TEST(ControlQueue, KeepsTheNewestOfAKind) {
  ControlQueue queue;
  for (int64_t every = 1; every <= 1000; ++every) {
    ASSERT_TRUE(queue.SetEvery(every).ok());
    EXPECT_TRUE(queue.Pause().ok());
    EXPECT_TRUE(queue.Resume().ok());
    EXPECT_TRUE(queue.RequestSnapshot().ok());
  }
  const std::vector<Command> commands = queue.Drain();
  ASSERT_EQ(commands.size(), 3u);
  EXPECT_EQ(std::get<SetInterval>(commands[0]).every, 1000);
  EXPECT_FALSE(std::get<SetPaused>(commands[1]).paused);
}

TEST(ControlQueue, RefusesAnIntervalThatIsNotPositive) {
  ControlQueue queue;
  for (int64_t every : {0, -3}) {
    const absl::Status status = queue.SetEvery(every);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr("every = " + std::to_string(every)));
  }
  EXPECT_TRUE(queue.Drain().empty());
}

TEST(ControlQueue, WakesForEveryCommandAndForWhatIsWaiting) {
  ControlQueue queue;
  int wakes = 0;
  EXPECT_TRUE(queue.Pause().ok());
  queue.Open([&] { ++wakes; });
  EXPECT_EQ(wakes, 1);
  EXPECT_TRUE(queue.Resume().ok());
  EXPECT_EQ(wakes, 2);
  EXPECT_EQ(queue.Drain().size(), 1u);
}

TEST(ControlQueue, RefusesCommandsOnceClosed) {
  ControlQueue queue;
  int wakes = 0;
  queue.Open([&] { ++wakes; });
  EXPECT_TRUE(queue.Pause().ok());
  queue.Close();
  EXPECT_EQ(queue.RequestSnapshot().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(wakes, 1);
  EXPECT_TRUE(queue.Drain().empty());
}

TEST(ControlQueue, TakesNoSnapshotForNothing) {
  std::atomic<bool> nothing_to_do{true};
  ControlQueue queue(nullptr, nullptr, &nothing_to_do);
  EXPECT_EQ(queue.RequestSnapshot().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(queue.Drain().empty());
  nothing_to_do = false;
  EXPECT_TRUE(queue.RequestSnapshot().ok());
}

TEST(ControlQueue, NumbersSlicesAndKnowsTheSnapshotsBeforeThem) {
  StatusBoard board;
  SliceTracker slices;
  slices.Open({{QuantizationMethod::kGptq, 3}});
  ControlQueue queue(&slices, &board);
  board.OnSnapshot(SnapshotResult::kTaken, 0);
  EXPECT_EQ(queue.RequestSlice(Gptq3()).value(), 1);
  EXPECT_EQ(slices.status().state, SliceState::kWaitingForFirst);
  EXPECT_EQ(queue.RequestSlice(Gptq3()).status().code(), absl::StatusCode::kFailedPrecondition);
  const std::vector<Command> commands = queue.Drain();
  ASSERT_EQ(commands.size(), 1u);
  const AcceptedSlice& slice = std::get<MakeSlice>(commands[0]).slice;
  EXPECT_EQ(slice.number, 1);
  EXPECT_EQ(slice.request.method, QuantizationMethod::kGptq);
  EXPECT_EQ(slice.snapshots_taken, 1);
}

TEST(ControlQueue, RefusesSlicesWithoutAMonitor) {
  ControlQueue queue;
  EXPECT_EQ(queue.RequestSlice(Gptq3()).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace control_queue_test
}  // namespace ptqwatch::internal
