#include "base/listener.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "base/strings.h"
#include "support/raw_client.h"

namespace ptqwatch::internal {
namespace listener_test {

using testing::RawClient;

struct ListenerTest : ::testing::Test {
  ListenerTest() {
    auto socket = BindListenAddress(
        {.kind = "test", .address = "127.0.0.1:0", .allow_remote_option = "none"});
    EXPECT_TRUE(socket.ok()) << socket.status();
    address = StrCat("127.0.0.1:", socket->port());
    auto started = Listener::Start(*std::move(socket), "listens", "test", [this](int connection) {
      std::lock_guard<std::mutex> lock(mutex);
      taken.push_back(connection);
      changed.notify_all();
    });
    EXPECT_TRUE(started.ok()) << started.status();
    listener = *std::move(started);
  }
  ~ListenerTest() override {
    listener->Stop();
    for (const int connection : taken) close(connection);
  }
  bool WaitForTaken(size_t count) {
    std::unique_lock<std::mutex> lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(20), [&] { return taken.size() >= count; });
  }

  std::string address;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int> taken;
  std::unique_ptr<Listener> listener;
};

TEST_F(ListenerTest, HandsConnectionsOver) {
  RawClient one(address);
  RawClient two(address);
  ASSERT_TRUE(WaitForTaken(2));
  EXPECT_NE(fcntl(taken[0], F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(fcntl(taken[0], F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(ListenerTest, LeavesTheLastDescriptorsToTheTrainer) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(0);
  close(next);
  // The client takes about this number, and the connection about the one after it.
  const rlimit few{.rlim_cur = static_cast<rlim_t>(next) - 3 + Listener::kReservedDescriptors,
                   .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  {
    RawClient refused(address);
    EXPECT_EQ(refused.ReadAll(), "") << "closed at once";
  }
  EXPECT_TRUE(taken.empty());
  setrlimit(RLIMIT_NOFILE, &before);
  RawClient client(address);
  EXPECT_TRUE(WaitForTaken(1));
}

TEST_F(ListenerTest, StopsWhileItWaits) {
  listener->Stop();
  listener->Stop();
  EXPECT_FALSE(RawClient(address).connected());
}

}  // namespace listener_test
}  // namespace ptqwatch::internal
