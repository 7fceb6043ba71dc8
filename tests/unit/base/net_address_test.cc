#include "base/net_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/strings.h"

namespace ptqwatch::internal {
namespace {

using ::testing::StartsWith;

TEST(ParseHostPort, ReadsHostAndPort) {
  const auto expect = [](const char* address, const char* host, int port) {
    const absl::StatusOr<HostPort> target = ParseHostPort("http", address);
    ASSERT_TRUE(target.ok()) << target.status();
    EXPECT_EQ(target->host, host);
    EXPECT_EQ(target->port, port);
    EXPECT_EQ(StrCat(target->written_host, ":", port), address);
  };
  expect("127.0.0.1:9464", "127.0.0.1", 9464);
  expect("localhost:0", "localhost", 0);
  expect("[::1]:65535", "::1", 65535);
}

TEST(ParseHostPort, NamesTheAddressItCannotRead) {
  for (const char* address :
       {"", ":", "127.0.0.1", "127.0.0.1:", ":9464", "127.0.0.1:99999", "127.0.0.1:65536",
        "127.0.0.1:-1", "127.0.0.1:+1", "127.0.0.1: 1", "127.0.0.1:1x", "127.0.0.1:999999999999",
        "::1:9464", "[::1", "[::1]", "[::1]9464", "[]:1", "http://127.0.0.1:1/"}) {
    const absl::StatusOr<HostPort> target = ParseHostPort("http", address);
    EXPECT_EQ(target.status().code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(target.status().message()),
                StartsWith("http address '" + std::string(address) + "': "));
  }
}

}  // namespace
}  // namespace ptqwatch::internal
