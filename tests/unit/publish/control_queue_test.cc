#include "publish/control_queue.h"

#include <gmock/gmock.h>

#include <atomic>

namespace ptqwatch::internal {
namespace control_queue_test {

MakeSlice Gptq3() { return {.method = QuantizationMethod::kGptq, .bits = 3}; }

// The monitor thread's side of a queue.
struct Carried {
  explicit Carried(ControlQueue& queue) { queue.CarryOut(switches); }

  TrainerSwitches switches{1};
};

TEST(ControlQueue, CarriesCommandsOutOnceInTheOrderTheyCame) {
  ControlQueue queue;
  EXPECT_TRUE(queue.Do(Resume{}).ok());
  EXPECT_TRUE(queue.Do(Pause{}).ok());
  EXPECT_TRUE(queue.Do(TakeSnapshot{}).ok());
  ASSERT_TRUE(queue.Do(SetEvery{7}).ok());
  Carried carried(queue);
  EXPECT_TRUE(carried.switches.paused);
  EXPECT_EQ(carried.switches.requests, 1);
  EXPECT_EQ(carried.switches.every, 7);
  queue.CarryOut(carried.switches);
  EXPECT_EQ(carried.switches.requests, 1);
}

TEST(ControlQueue, KeepsTheNewestOfAKind) {
  ControlQueue queue;
  for (int64_t every = 1; every <= 1000; ++every) {
    ASSERT_TRUE(queue.Do(SetEvery{every}).ok());
    EXPECT_TRUE(queue.Do(Pause{}).ok());
    EXPECT_TRUE(queue.Do(Resume{}).ok());
    EXPECT_TRUE(queue.Do(TakeSnapshot{}).ok());
  }
  const Carried carried(queue);
  EXPECT_EQ(carried.switches.every, 1000);
  EXPECT_FALSE(carried.switches.paused);
  EXPECT_EQ(carried.switches.requests, 1);
}

TEST(ControlQueue, AnswersWithTheSequenceOfTheNewestReport) {
  TrainerBoard steps;
  StatusBoard board{&steps};
  ControlQueue queue(nullptr, &board);
  EXPECT_EQ(queue.Do(TakeSnapshot{}).value(), 0);
  board.OnReport(12);
  EXPECT_EQ(queue.Do(TakeSnapshot{}).value(), 12);
  EXPECT_EQ(queue.Do(Pause{}).value(), 12);
}

TEST(ControlQueue, RefusesAnIntervalThatIsNotPositive) {
  ControlQueue queue;
  for (int64_t every : {0, -3}) {
    const absl::Status status = queue.Do(SetEvery{every}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr("every = " + std::to_string(every)));
  }
  EXPECT_EQ(Carried(queue).switches.every, 1);
}

TEST(ControlQueue, WakesForEveryCommandAndForWhatIsWaiting) {
  ControlQueue queue;
  int wakes = 0;
  EXPECT_TRUE(queue.Do(Pause{}).ok());
  queue.Open([&] { ++wakes; });
  EXPECT_EQ(wakes, 1);
  EXPECT_TRUE(queue.Do(Resume{}).ok());
  EXPECT_EQ(wakes, 2);
}

TEST(ControlQueue, RefusesCommandsOnceClosed) {
  ControlQueue queue;
  int wakes = 0;
  queue.Open([&] { ++wakes; });
  EXPECT_TRUE(queue.Do(Pause{}).ok());
  queue.Close();
  EXPECT_EQ(queue.Do(TakeSnapshot{}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(wakes, 1);
  EXPECT_FALSE(Carried(queue).switches.paused);
}

TEST(ControlQueue, RefusesASnapshotThatWouldMeasureNothing) {
  Page page(/*every=*/1, /*stretch=*/0);
  page.switches.nothing_to_measure = true;
  ControlQueue queue(nullptr, nullptr, &page);
  EXPECT_EQ(queue.Do(TakeSnapshot{}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Carried(queue).switches.requests, 0);
  page.switches.nothing_to_measure = false;
  EXPECT_TRUE(queue.Do(TakeSnapshot{}).ok());
}

TEST(ControlQueue, NumbersSlicesAndKnowsTheSnapshotsBeforeThem) {
  JobTrackers jobs;
  jobs.slice.Open([](const MakeSlice& request) -> absl::StatusOr<SliceStatus> {
    return SliceStatus{.state = SliceState::kWaitingForFirst, .request = request};
  });
  Page page(/*every=*/1, /*stretch=*/0);
  ControlQueue queue(&jobs, nullptr, &page);
  ASSERT_TRUE(page.slot.Claim());
  EXPECT_EQ(queue.Do(Gptq3()).value(), 1);
  EXPECT_EQ(jobs.slice.status().state, SliceState::kWaitingForFirst);
  EXPECT_EQ(queue.Do(Gptq3()).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(jobs.slice.status().request.method, QuantizationMethod::kGptq);
  EXPECT_EQ(jobs.slice.snapshots_taken(), 1);
}

TEST(ControlQueue, RefusesSlicesWithoutAMonitor) {
  ControlQueue queue;
  EXPECT_EQ(queue.Do(Gptq3()).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace control_queue_test
}  // namespace ptqwatch::internal
