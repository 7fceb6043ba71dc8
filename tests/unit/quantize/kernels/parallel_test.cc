#include "quantize/kernels/parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace ptqwatch::internal {
namespace parallel_test {

using ::testing::HasSubstr;

constexpr double kMuchWork = 1e12;

ExecutionContext WithThreads(int threads) {
  ExecutionContext context;
  context.threads = threads;
  return context;
}

TEST(CheckThreads, NamesACountBelowOne) {
  EXPECT_TRUE(CheckThreads(WithThreads(1)).ok());
  for (int threads : {0, -3}) {
    const absl::Status status = CheckThreads(WithThreads(threads));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("context.threads is " + std::to_string(threads)));
  }
}

TEST(ThreadTeam, HasNoMoreThreadsThanWork) {
  ExecutionContext context = WithThreads(5);
  EXPECT_EQ(ThreadTeam(kMuchWork, context).size(), 5);
  EXPECT_EQ(ThreadTeam(0, context).size(), 1);
  EXPECT_EQ(ThreadTeam(2 * (1 << 22), context).size(), 3);
  ExecutionContext alone = WithThreads(1);
  EXPECT_EQ(ThreadTeam(kMuchWork, alone).size(), 1);
}

TEST(ThreadTeam, CallsEveryIndexOnce) {
  for (int threads : {1, 2, 5}) {
    ExecutionContext context = WithThreads(threads);
    ThreadTeam team(kMuchWork, context);
    for (int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
      const absl::Status status =
          team.ForEach(count, [&](int thread, int64_t index, const ExecutionContext&) {
            EXPECT_GE(thread, 0);
            EXPECT_LT(thread, threads);
            ++calls[static_cast<size_t>(index)];
            return absl::OkStatus();
          });
      EXPECT_TRUE(status.ok());
      for (const std::atomic<int>& n : calls) ASSERT_EQ(n.load(), 1);
    }
  }
}

// Every piece waits until all threads are inside one.
TEST(ThreadTeam, RunsPiecesAtTheSameTime) {
  ExecutionContext context = WithThreads(3);
  ThreadTeam team(kMuchWork, context);
  std::atomic<int> inside{0};
  std::mutex mutex;
  std::set<int> threads;
  const absl::Status status = team.ForEach(3, [&](int thread, int64_t, const ExecutionContext&) {
    ++inside;
    while (inside < 3) std::this_thread::yield();
    const std::lock_guard<std::mutex> lock(mutex);
    threads.insert(thread);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(threads, (std::set<int>{0, 1, 2}));
}

TEST(ThreadTeam, ReturnsTheErrorOfTheLowestIndex) {
  for (int threads : {1, 4}) {
    ExecutionContext context = WithThreads(threads);
    ThreadTeam team(kMuchWork, context);
    std::atomic<int> calls{0};
    const absl::Status status =
        team.ForEach(1000, [&](int, int64_t index, const ExecutionContext&) {
          ++calls;
          return index >= 10 ? absl::DataLossError(std::to_string(index)) : absl::OkStatus();
        });
    EXPECT_EQ(status, absl::DataLossError("10"));
    EXPECT_LE(calls.load(), 10 + threads);
    // The team can be used again.
    EXPECT_TRUE(
        team.ForEach(5, [](int, int64_t, const ExecutionContext&) { return absl::OkStatus(); })
            .ok());
  }
}

TEST(ThreadTeam, TurnsExceptionsIntoStatuses) {
  for (int threads : {1, 4}) {
    ExecutionContext context = WithThreads(threads);
    ThreadTeam team(kMuchWork, context);
    absl::Status status = team.ForEach(
        20, [](int, int64_t, const ExecutionContext&) -> absl::Status { throw std::bad_alloc(); });
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    status = team.ForEach(20, [](int, int64_t index, const ExecutionContext&) -> absl::Status {
      if (index == 19) throw std::runtime_error("the last one");
      return absl::OkStatus();
    });
    EXPECT_EQ(status, absl::InternalError("the last one"));
  }
}

TEST(ThreadTeam, GivesHelpersTheTokenButNotThePacer) {
  ExecutionContext context = WithThreads(3);
  context.pacer = Pacer(0.5, Clock::Real());
  ThreadTeam team(kMuchWork, context);
  std::vector<std::atomic<double>> duty(3);
  std::atomic<int> inside{0};
  ASSERT_TRUE(team.ForEach(3,
                           [&](int thread, int64_t, const ExecutionContext& own) {
                             duty[static_cast<size_t>(thread)] = own.pacer.duty_cycle();
                             ++inside;
                             while (inside < 3) std::this_thread::yield();
                             return absl::OkStatus();
                           })
                  .ok());
  EXPECT_EQ(duty[0].load(), 0.5);
  EXPECT_EQ(duty[1].load(), 1.0);
  EXPECT_EQ(duty[2].load(), 1.0);
  context.cancel.Cancel();
  EXPECT_EQ(
      team.ForEach(9, [](int, int64_t, const ExecutionContext& own) { return own.Checkpoint(); })
          .code(),
      absl::StatusCode::kCancelled);
}

}  // namespace parallel_test
}  // namespace ptqwatch::internal
