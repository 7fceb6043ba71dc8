#include "address.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ServerAddress, TakesEveryForm) {
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
    const auto address = ParseServerAddress(text);
    ASSERT_TRUE(address.ok()) << text << ": " << address.status();
    EXPECT_EQ(address->ToString(), expected);
  }
}

TEST(ServerAddress, RefusesWhatIsNoneInOneLineThatNamesIt) {
  const std::vector<std::string> cases = {"",          ":",
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
                                          "[::1]:0",   "dns:///h:1"};
  for (const std::string& text : cases) {
    const auto address = ParseServerAddress(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string message(address.status().message());
    const std::string shown = text == "h\n:1" ? "h?:1" : text;
    EXPECT_THAT(message, HasSubstr("'" + shown + "'"));
    EXPECT_THAT(message, Not(HasSubstr("\n")));
  }
}

TEST(ServerAddress, SaysWhatToWriteInstead) {
  EXPECT_THAT(std::string(ParseServerAddress("::1").status().message()), HasSubstr("[::1]:PORT"));
  EXPECT_THAT(std::string(ParseServerAddress("9465").status().message()), HasSubstr(":9465"));
}

}  // namespace
}  // namespace ptqwatch::internal
