#include "base/net_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"

namespace ptqwatch::internal {
namespace net_address_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kDefaultPort = 9465;

ListenOptions Local(std::string address) {
  return {.kind = "http", .address = std::move(address), .allow_remote_option = "X::allow_remote"};
}

TEST(ParseListenAddress, ReadsHostAndPort) {
  const auto expect = [](const char* address, const char* host, int port) {
    const absl::StatusOr<HostPort> target = ParseListenAddress("http", address);
    ASSERT_TRUE(target.ok()) << target.status();
    EXPECT_EQ(target->host, host);
    EXPECT_EQ(target->port, port);
    EXPECT_EQ(target->ToString(), address);
  };
  expect("127.0.0.1:9464", "127.0.0.1", 9464);
  expect("localhost:0", "localhost", 0);
  expect("[::1]:65535", "::1", 65535);
}

TEST(ParseListenAddress, NamesTheAddressItCannotRead) {
  for (const char* address :
       {"", ":", "127.0.0.1", "127.0.0.1:", ":9464", "127.0.0.1:99999", "127.0.0.1:65536",
        "127.0.0.1:-1", "127.0.0.1:+1", "127.0.0.1: 1", "127.0.0.1:1x", "127.0.0.1:999999999999",
        "::1:9464", "[::1", "[::1]", "[::1]9464", "[]:1", "http://127.0.0.1:1/"}) {
    const absl::StatusOr<HostPort> target = ParseListenAddress("http", address);
    EXPECT_EQ(target.status().code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(Message(target.status())),
                StartsWith(StrCat("http address '", address, "': ")));
  }
}

TEST(ParseServerAddress, TakesEveryForm) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"127.0.0.1:9465", "127.0.0.1:9465"},
      {":7", "127.0.0.1:7"},
      {"trainer-7.cluster_a.local:65535", "trainer-7.cluster_a.local:65535"},
      {"localhost", "localhost:9465"},
      {"[::1]:9000", "[::1]:9000"},
      {"[fe80::1]", "[fe80::1]:9465"},
      {"node1:009", "node1:9"},
  };
  for (const auto& [text, expected] : cases) {
    const auto address = ParseServerAddress(text, kDefaultPort);
    ASSERT_TRUE(address.ok()) << text << ": " << address.status();
    EXPECT_EQ(address->ToString(), expected);
  }
}

TEST(ParseServerAddress, RefusesOtherTextInOneLineThatNamesIt) {
  for (const std::string text : {"",          ":",
                                 "host:",     "host:0",
                                 ":65536",    "host:-1",
                                 "host:+1",   "host: 1",
                                 "host:1x",   "host:99999999999",
                                 "a b:1",     "http://h:1/metrics",
                                 "unix:/tmp", "h:1:2",
                                 "[::1",      "[::1]x",
                                 "[::1]:",    "[h]:1",
                                 "::1",       "[]:1",
                                 "-x:1",      ".:1",
                                 "9465",      "h\n:1",
                                 "[::1]:0",   "dns:///h:1"}) {
    const auto address = ParseServerAddress(text, kDefaultPort);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string shown = text == "h\n:1" ? "h\\n:1" : text;
    EXPECT_THAT(std::string(Message(address.status())),
                AllOf(HasSubstr(StrCat("'", shown, "'")), Not(HasSubstr("\n"))));
  }
}

TEST(ParseServerAddress, SaysWhatToWriteInstead) {
  const auto message = [](const char* text) {
    return std::string(Message(ParseServerAddress(text, kDefaultPort).status()));
  };
  EXPECT_THAT(message("::1"), HasSubstr("[::1]:PORT"));
  EXPECT_THAT(message("9465"), HasSubstr(":9465"));
}

TEST(BindListenAddress, TakesAFreePortOfTheLoopback) {
  const absl::StatusOr<BoundSocket> bound = BindListenAddress(Local("127.0.0.1:0"));
  ASSERT_TRUE(bound.ok()) << bound.status();
  EXPECT_EQ(bound->numeric_host(), "127.0.0.1");
  EXPECT_GT(bound->port(), 0);
  EXPECT_EQ(listen(bound->descriptor(), 1), 0);
}

TEST(BindListenAddress, RefusesAPortThatIsServedAndTakesItOnceItIsFree) {
  absl::StatusOr<BoundSocket> first = BindListenAddress(Local("127.0.0.1:0"));
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(listen(first->descriptor(), 1), 0);
  const std::string address = StrCat("127.0.0.1:", first->port());
  EXPECT_EQ(BindListenAddress(Local(address)).status(),
            absl::UnavailableError(
                StrCat("http address '", address, "': cannot bind: Address already in use")));
  { const BoundSocket closed = *std::move(first); }
  EXPECT_TRUE(BindListenAddress(Local(address)).ok());
}

TEST(BindListenAddress, LeavesTheLoopbackOnlyIfAllowed) {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "192.0.2.1:0"}) {
    const absl::Status refused = BindListenAddress(Local(address)).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(Message(refused)),
                AllOf(HasSubstr(StrCat("'", address, "'")), HasSubstr("X::allow_remote")));
  }
  ListenOptions everywhere = Local("0.0.0.0:0");
  everywhere.allow_remote = true;
  EXPECT_TRUE(BindListenAddress(everywhere).ok());
}

TEST(BindListenAddress, NamesAHostThatDoesNotResolve) {
  const absl::Status unknown = BindListenAddress(Local("no-such-host.invalid:0")).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(Message(unknown)), HasSubstr("cannot resolve 'no-such-host.invalid'"));
}

}  // namespace net_address_test
}  // namespace ptqwatch::internal
