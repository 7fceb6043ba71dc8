#include "base/log.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace ptqwatch::internal {
namespace log_test {

class LogTest : public ::testing::Test {
 protected:
  void TearDown() override { SetLogSink(Severity::kError, nullptr); }
};

TEST_F(LogTest, GivesTheSinkWhatIsSevereEnough) {
  std::vector<std::string> lines;
  SetLogSink(Severity::kWarning,
             [&](Severity, std::string_view message) { lines.emplace_back(message); });
  Log(Severity::kInfo, "a");
  Log(Severity::kWarning, "b");
  Log(Severity::kError, "c");
  EXPECT_EQ(lines, (std::vector<std::string>{"b", "c"}));
}

TEST_F(LogTest, SurvivesASinkThatThrowsAndNoSink) {
  SetLogSink(Severity::kInfo, [](Severity, std::string_view) { throw std::runtime_error("no"); });
  Log(Severity::kError, "x");
  SetLogSink(Severity::kInfo, nullptr);
  Log(Severity::kError, "x");
}

TEST_F(LogTest, LetsOneMessageThroughAPeriod) {
  std::vector<std::string> lines;
  SetLogSink(Severity::kInfo,
             [&](Severity, std::string_view message) { lines.emplace_back(message); });
  RateLimitedLog log(std::chrono::seconds(3600));
  for (int i = 0; i < 5; ++i) log(Severity::kWarning, "disk full");
  EXPECT_EQ(lines, std::vector<std::string>{"disk full"});
}

}  // namespace log_test
}  // namespace ptqwatch::internal
