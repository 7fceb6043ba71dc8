#include "client/connection.h"

#include <chrono>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/eventually.h"
#include "unit/proto/client/fake_server.h"
#include "unit/proto/client/raw_server.h"

namespace ptqwatch::internal {
namespace connection_test {

using std::chrono::milliseconds;
using ::testing::AllOf;
using testing::Eventually;
using testing::FakeServer;
using ::testing::HasSubstr;
using testing::kHttpAnswer;
using ::testing::Not;
using testing::RawServer;

absl::Status Ask(const HostPort& address, milliseconds timeout = kCallTimeout) {
  Connection connection(address, timeout);
  v1::GetStatusResponse response;
  const grpc::Status answer = connection.GetStatus(&response);
  return answer.ok() ? absl::OkStatus() : ExplainFailure(answer, address);
}

TEST(Connection, GetsAnswers) {
  FakeServer server;
  server.SetStatus([](v1::GetStatusResponse& status) { status.set_step(7); });
  Connection connection(server.address());
  v1::GetStatusResponse response;
  ASSERT_TRUE(connection.GetStatus(&response).ok());
  EXPECT_EQ(response.step(), 7);
}

TEST(Connection, SaysWhatIsWrongWithAnAddress) {
  int port = 0;
  {
    RawServer gone("");
    port = gone.address().port;
  }
  const HostPort address{"127.0.0.1", port};
  const absl::Status refused = Ask(address);
  EXPECT_TRUE(absl::IsUnavailable(refused));
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr(address.ToString()), HasSubstr("connection refused"),
                    HasSubstr("\"grpc HOST:PORT\""), Not(HasSubstr("\n"))));
}

TEST(Connection, NamesThePortToUseIfAWebServerAnswers) {
  RawServer web(kHttpAnswer);
  absl::Status status;
  // On a busy machine the answer may be late.
  EXPECT_TRUE(Eventually([&] {
    status = Ask(web.address(), milliseconds(300));
    return status.message().find("/metrics") != std::string::npos;
  }));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(web.address().ToString()), HasSubstr("\"grpc HOST:PORT\""),
                    HasSubstr("/metrics")));
  EXPECT_FALSE(status.ok());
}

TEST(Connection, ReportsASilentPort) {
  RawServer silent("");
  const absl::Status status = Ask(silent.address(), milliseconds(50));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(silent.address().ToString()));
}

TEST(Connection, ReportsAServerOfAnotherKind) {
  RawServer ssh("SSH-2.0-OpenSSH_9.2\r\n");
  const absl::Status status = Ask(ssh.address(), milliseconds(300));
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(ssh.address().ToString()));
}

TEST(ExplainFailure, IsOneLineForEveryCode) {
  FakeServer server;
  for (int code = 1; code <= 16; ++code) {
    const grpc::Status failure(static_cast<grpc::StatusCode>(code), "two\nlines\x1b[2J");
    const absl::Status explained = ExplainFailure(failure, server.address());
    EXPECT_EQ(static_cast<int>(explained.code()), code);
    const std::string message(explained.message());
    EXPECT_THAT(message,
                AllOf(HasSubstr(server.target()), Not(HasSubstr("\n")), Not(HasSubstr("\x1b"))));
  }
}

TEST(MonitorHasStopped, NeedsTheServersWord) {
  using grpc::StatusCode;
  EXPECT_TRUE(MonitorHasStopped(grpc::Status(StatusCode::UNAVAILABLE, "the monitor has stopped")));
  EXPECT_FALSE(MonitorHasStopped(grpc::Status(StatusCode::UNAVAILABLE, "Socket closed")));
  EXPECT_FALSE(MonitorHasStopped(grpc::Status(StatusCode::UNKNOWN, "the monitor has stopped")));
  EXPECT_FALSE(MonitorHasStopped(grpc::Status::OK));
}

}  // namespace connection_test
}  // namespace ptqwatch::internal
