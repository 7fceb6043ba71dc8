// Tests of stopping the server.

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "support/raw_client.h"
#include "unit/exporters/grpc/grpc_fixture.h"

namespace ptqwatch {
namespace grpc_stop_test {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::GrpcClient;
using testing::Watch;

class GrpcStopTest : public testing::GrpcTest {
 protected:
  /// Ends the run and returns how long Stop takes.
  milliseconds Stop(milliseconds deadline) {
    const auto start = steady_clock::now();
    run_->End();
    server_->Stop(deadline);
    return std::chrono::duration_cast<milliseconds>(steady_clock::now() - start);
  }
};

TEST_F(GrpcStopTest, EndsStreamsAfterAllThatWasPublished) {
  CreateAndStart();
  constexpr int64_t kReports = 50;
  Watch live(address());
  Watch late(address());
  const auto read = [&](Watch* watch) {
    for (int64_t sequence = 1; sequence <= kReports; ++sequence) {
      EXPECT_EQ(watch->Next(), sequence);
    }
    EXPECT_EQ(watch->Next(), -1);
  };
  std::thread reader(read, &live), late_reader(read, &late);
  for (int64_t sequence = 1; sequence <= kReports; ++sequence) run_->Publish(sequence, 50'000);
  EXPECT_LT(Stop(std::chrono::seconds(60)), std::chrono::seconds(20));
  reader.join();
  late_reader.join();
  for (Watch* watch : {&live, &late}) {
    const grpc::Status status = watch->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(status.error_message(), "the monitor has stopped");
  }
}

TEST_F(GrpcStopTest, ReturnsInTimeWithClientsThatDoNotRead) {
  CreateAndStart();
  Watch idle(address());
  Watch never_reads(address());
  Watch reads(address());
  // More bytes than the buffers of both sides hold.
  for (int64_t sequence = 1; sequence <= 200; ++sequence) {
    run_->Publish(sequence, 100'000);
    ASSERT_EQ(reads.Next(), sequence);
  }
  testing::RawClient says_nothing(address());
  testing::RawClient stops_in_a_frame(address());
  stops_in_a_frame.Send(std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x20\1", 28));
  EXPECT_LT(Stop(milliseconds(600)), std::chrono::seconds(20));
  EXPECT_EQ(reads.Finish().error_message(), "the monitor has stopped");
}

TEST_F(GrpcStopTest, ReturnsAtOnceWithIdleStreams) {
  CreateAndStart();
  std::vector<std::unique_ptr<Watch>> watches;
  for (int i = 0; i < 20; ++i) watches.push_back(std::make_unique<Watch>(address()));
  EXPECT_LT(Stop(std::chrono::seconds(60)), std::chrono::seconds(20));
  for (auto& watch : watches) {
    EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
}

TEST_F(GrpcStopTest, MayBeCalledTwiceAndWithoutARun) {
  Create();
  EXPECT_LT(Stop(std::chrono::seconds(60)), std::chrono::seconds(20));
  EXPECT_LT(Stop(std::chrono::seconds(60)), std::chrono::seconds(20));
  EXPECT_FALSE(testing::RawClient(address()).connected());
  run_->Publish(1);
  v1::ListReportsResponse page;
  EXPECT_EQ(GrpcClient(address()).List({}, &page).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(GrpcStopTest, MayBeFollowedByAnotherServerOnTheSamePort) {
  CreateAndStart();
  const std::string former = address();
  Watch watch(former);
  run_->Publish(1);
  ASSERT_EQ(watch.Next(), 1);
  run_.reset();
  server_->Stop(milliseconds(0));
  server_.reset();
  const auto second =
      internal::GrpcServer::Start({.listen = {.kind = "grpc", .address = former}}, &runs_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->address(), former);
}

}  // namespace grpc_stop_test
}  // namespace ptqwatch
