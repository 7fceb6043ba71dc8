#include "first_byte_wait.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace first_byte_wait_test {

using std::chrono::milliseconds;
constexpr milliseconds kLong{60'000};

/// One end is the waiting connection, the other one its client.
struct Pair {
  Pair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0); }
  ~Pair() { close(ends[1]); }
  int connection() const { return ends[0]; }
  void Say() const { EXPECT_EQ(write(ends[1], "x", 1), 1); }
  /// Waits until the connection is closed.
  bool Closed() const {
    char byte = 0;
    return read(ends[1], &byte, 1) == 0;
  }
  std::array<int, 2> ends{};
};

/// Collects what is ready.
class Ready {
 public:
  void operator()(int connection) {
    MutexLock lock(mutex_);
    newest_ = connection;
    changed_.SignalAll();
  }
  /// Waits for the next one, and closes it.
  int Next() {
    MutexLock lock(mutex_);
    while (newest_ < 0) changed_.Wait(mutex_);
    close(newest_);
    return std::exchange(newest_, -1);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int newest_ ABSL_GUARDED_BY(mutex_) = -1;
};

TEST(FirstByteWait, HandsOnWhoeverSpeaks) {
  Ready ready;
  const Pair silent, first, second,
      late;  // outlive the wait, which would take their end for a word
  auto wait = FirstByteWait::Start(kLong, [&](int connection) { ready(connection); }).value();
  first.Say();  // before it waits
  wait->Add(silent.connection());
  wait->Add(first.connection());
  EXPECT_EQ(ready.Next(), first.connection());
  wait->Add(second.connection());
  second.Say();
  EXPECT_EQ(ready.Next(), second.connection());
  wait->Stop();
  EXPECT_TRUE(silent.Closed());
  wait->Add(late.connection());
  EXPECT_TRUE(late.Closed());
}

TEST(FirstByteWait, ClosesThoseThatStaySilent) {
  const Pair first, second;
  auto wait = FirstByteWait::Start(milliseconds(20), [](int) { FAIL(); }).value();
  wait->Add(first.connection());
  wait->Add(second.connection());
  EXPECT_TRUE(first.Closed());
  EXPECT_TRUE(second.Closed());
}

TEST(FirstByteWait, MakesRoomByClosingTheOldest) {
  const std::array<Pair, FirstByteWait::kMostConnections + 1> pairs;
  auto wait = FirstByteWait::Start(kLong, [](int) { FAIL(); }).value();
  for (const Pair& pair : pairs) wait->Add(pair.connection());
  EXPECT_TRUE(pairs.front().Closed());
}

}  // namespace first_byte_wait_test
}  // namespace ptqwatch::internal
