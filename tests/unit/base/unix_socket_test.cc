#include "base/unix_socket.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace unix_socket_test {

using std::chrono::seconds;
using std::chrono::steady_clock;

std::pair<UnixConnection, UnixConnection> Pair() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  return {UnixConnection(ends[0]), UnixConnection(ends[1])};
}

TEST(UnixConnection, CarriesLines) {
  const auto [one, other] = Pair();
  EXPECT_TRUE(one.SendLine("hello", seconds(20)).ok());
  const auto line = other.ReceiveLine(100, seconds(20));
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(*line, "hello");
  EXPECT_EQ(other.PeerUser(), geteuid());
  EXPECT_TRUE(other.IsOfThisUser());
}

TEST(UnixConnection, WaitsNoLongerThanItIsNotCancelled) {
  const auto [one, other] = Pair();
  const int cancel = eventfd(1, EFD_CLOEXEC);
  const auto begin = steady_clock::now();
  EXPECT_TRUE(absl::IsDeadlineExceeded(other.ReceiveLine(100, seconds(20), cancel).status()));
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      one.SendLine(std::string(size_t{8} << 20, 'x'), seconds(20), cancel)));
  EXPECT_LT(steady_clock::now() - begin, seconds(10));
  close(cancel);
}

}  // namespace unix_socket_test
}  // namespace ptqwatch::internal
