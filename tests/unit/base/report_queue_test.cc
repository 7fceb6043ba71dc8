#include "base/report_queue.h"

#include <chrono>
#include <future>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace report_queue_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using Queue = ReportQueue<int>;

constexpr seconds kLong(20);

// A handler that holds its first item until it is let go, and records what it has seen.
struct Handler {
  std::vector<int> handled;
  std::vector<QueueDrop> drops;
  std::promise<void> holds;
  std::promise<void> go_on;
  bool hold_first = false;

  Queue::Options Options(size_t capacity = 3) {
    return {.thread_name = "queue-test",
            .capacity = capacity,
            .handle =
                [this](int item) {
                  if (hold_first) {
                    hold_first = false;
                    holds.set_value();
                    go_on.get_future().wait();
                  }
                  handled.push_back(item);
                  return true;
                },
            .dropped = [this](QueueDrop reason) { drops.push_back(reason); }};
  }
  // A queue that has its first item, 1, in hand until `go_on`.
  std::unique_ptr<Queue> StartAndHold(Queue::Options options) {
    hold_first = true;
    auto queue = Queue::Start(std::move(options));
    EXPECT_TRUE(queue.ok()) << queue.status();
    (*queue)->Push(1);
    holds.get_future().wait();
    return *std::move(queue);
  }
};

TEST(ReportQueue, HandlesInOrderAndRests) {
  Handler handler;
  auto options = handler.Options(100);
  std::promise<void> rested;
  bool first = true;
  options.rest = [&] {
    if (std::exchange(first, false)) rested.set_value();
  };
  auto queue = Queue::Start(std::move(options));
  ASSERT_TRUE(queue.ok()) << queue.status();
  for (int i = 1; i <= 5; ++i) (*queue)->Push(i);
  rested.get_future().wait();
  EXPECT_TRUE((*queue)->Stop(kLong));
  EXPECT_TRUE((*queue)->Stop(kLong));
  (*queue)->Push(6);
  EXPECT_THAT(handler.handled, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ((*queue)->dropped(), 0);
}

TEST(ReportQueue, DropsTheOldestButNotTheOneInHand) {
  Handler handler;
  const auto queue = handler.StartAndHold(handler.Options());
  for (int i = 2; i <= 5; ++i) queue->Push(i);
  handler.go_on.set_value();
  EXPECT_TRUE(queue->Stop(kLong));
  EXPECT_THAT(handler.handled, ElementsAre(1, 4, 5));
  EXPECT_THAT(handler.drops, ElementsAre(QueueDrop::kFull, QueueDrop::kFull));
  EXPECT_EQ(queue->dropped(), 2);
}

TEST(ReportQueue, ARoomForOneKeepsTheItemInHand) {
  Handler handler;
  const auto queue = handler.StartAndHold(handler.Options(1));
  queue->Push(2);
  handler.go_on.set_value();
  EXPECT_TRUE(queue->Stop(kLong));
  EXPECT_THAT(handler.handled, ElementsAre(1));
  EXPECT_EQ(queue->dropped(), 1);
}

TEST(ReportQueue, TriesAnItemAgainWithTheNextPushAndAtStop) {
  std::vector<int> tries;
  std::promise<void> tried;
  int room = 0;  // handled items that fit
  auto queue = Queue::Start({.thread_name = "queue-test",
                             .handle =
                                 [&](int item) {
                                   tries.push_back(item);
                                   if (tries.size() == 1) tried.set_value();
                                   return room-- > 0;
                                 },
                             .rest = {},
                             .dropped = {}});
  ASSERT_TRUE(queue.ok()) << queue.status();
  (*queue)->Push(1);
  tried.get_future().wait();
  EXPECT_TRUE((*queue)->Stop(kLong));
  EXPECT_THAT(tries, ElementsAre(1, 1));
  EXPECT_EQ((*queue)->dropped(), 1);
}

TEST(ReportQueue, LeavesAThreadBehindThatMissesTheDeadline) {
  struct Shared {
    std::promise<void> holds;
    std::promise<void> go_on;
  };
  auto shared = std::make_shared<Shared>();
  std::future<void> holds = shared->holds.get_future();
  auto queue = Queue::Start({.thread_name = "queue-test",
                             .handle =
                                 [shared](int) {
                                   shared->holds.set_value();
                                   shared->go_on.get_future().wait();
                                   return true;
                                 },
                             .rest = {},
                             .dropped = {}});
  ASSERT_TRUE(queue.ok()) << queue.status();
  (*queue)->Push(1);
  holds.wait();
  (*queue)->Push(2);
  EXPECT_FALSE((*queue)->Stop(milliseconds(1)));
  EXPECT_EQ((*queue)->dropped(), 2);
  queue->reset();
  shared->go_on.set_value();
  // The callbacks are destroyed when the thread ends.
  while (shared.use_count() > 1) std::this_thread::yield();
}

}  // namespace report_queue_test
}  // namespace ptqwatch::internal
