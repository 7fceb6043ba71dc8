// How the server ends.

#include <dirent.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/raw_client.h"
#include "unit/exporters/grpc/grpc_fixture.h"

namespace ptqwatch {
namespace grpc_stop_test {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::Eventually;
using testing::GrpcClient;
using testing::Watch;

int CountThreads() {
  int threads = 0;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* entry = readdir(tasks)) threads += entry->d_name[0] != '.';
  closedir(tasks);
  return threads;
}

class GrpcStopTest : public testing::GrpcExporterTest {
 protected:
  /// How long Stop takes.
  milliseconds Stop(milliseconds deadline) {
    const auto start = steady_clock::now();
    exporter_->Stop(deadline);
    return std::chrono::duration_cast<milliseconds>(steady_clock::now() - start);
  }
};

TEST_F(GrpcStopTest, EndsStreamsAfterAllThatWasPublished) {
  CreateAndStart();
  constexpr int64_t kReports = 50;
  Watch live(address());
  Watch late(address());
  std::thread reader([&] {
    for (int64_t sequence = 1; sequence <= kReports; ++sequence) EXPECT_EQ(live.Next(), sequence);
    EXPECT_EQ(live.Next(), -1);
  });
  std::thread late_reader([&] {
    for (int64_t sequence = 1; sequence <= kReports; ++sequence) EXPECT_EQ(late.Next(), sequence);
    EXPECT_EQ(late.Next(), -1);
  });
  for (int64_t sequence = 1; sequence <= kReports; ++sequence) Publish(sequence, 50'000);
  EXPECT_LT(Stop(std::chrono::seconds(10)), std::chrono::seconds(5));
  reader.join();
  late_reader.join();
  for (Watch* watch : {&live, &late}) {
    const grpc::Status status = watch->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(status.error_message(), "the monitor has stopped");
  }
}

TEST_F(GrpcStopTest, ReturnsInTimeWithClientsThatDoNotRead) {
  CreateAndStart({.queue_reports = 4});
  Watch idle(address());
  Watch never_reads(address());
  Watch reads(address());
  // Until the buffers between the two are full.
  for (int64_t sequence = 1; source_.drops("grpc", "slow_subscriber") == 0; ++sequence) {
    Publish(sequence, 100'000);
    ASSERT_EQ(reads.Next(), sequence);
  }
  testing::RawClient says_nothing(address());
  testing::RawClient stops_in_a_frame(address());
  stops_in_a_frame.Send(std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x20\1", 28));
  EXPECT_LT(Stop(milliseconds(600)), milliseconds(600));
  EXPECT_EQ(reads.Finish().error_message(), "the monitor has stopped");
}

TEST_F(GrpcStopTest, ReturnsAtOnceWithIdleStreams) {
  CreateAndStart();
  std::vector<std::unique_ptr<Watch>> watches;
  for (int i = 0; i < 20; ++i) watches.push_back(std::make_unique<Watch>(address()));
  EXPECT_LT(Stop(std::chrono::seconds(30)), std::chrono::seconds(5));
  for (auto& watch : watches) {
    EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
}

TEST_F(GrpcStopTest, MayBeCalledTwiceAndBeforeStart) {
  Create();
  EXPECT_LT(Stop(std::chrono::seconds(30)), std::chrono::seconds(5));
  EXPECT_LT(Stop(std::chrono::seconds(30)), std::chrono::seconds(5));
  EXPECT_EQ(exporter_->Start(&source_, &control_).code(), absl::StatusCode::kFailedPrecondition);
  CreateAndStart();
  Stop(std::chrono::seconds(30));
  Publish(1);
  Stop(milliseconds(0));
  EXPECT_FALSE(testing::RawClient(address()).connected());
  v1::ListReportsResponse page;
  EXPECT_EQ(GrpcClient(address()).List({}, &page).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(GrpcStopTest, MayHaveNoTimeAtAll) {
  CreateAndStart();
  Watch watch(address());
  for (int64_t sequence = 1; sequence <= 100; ++sequence) Publish(sequence, 10'000);
  exporter_->Stop(milliseconds(0));
  EXPECT_FALSE(watch.Finish().ok());
}

TEST_F(GrpcStopTest, LeavesNoThread) {
  const int before = CountThreads();
  {
    CreateAndStart();
    Watch watch(address());
    Publish(1);
    ASSERT_EQ(watch.Next(), 1);
    EXPECT_GT(CountThreads(), before);
    exporter_.reset();
  }
  EXPECT_TRUE(Eventually([&] { return CountThreads() == before; })) << CountThreads();
}

TEST_F(GrpcStopTest, MayBeFollowedByAnotherExporterOnTheSamePort) {
  CreateAndStart();
  const std::string address = exporter_->address();
  {
    Watch watch(address);
    Publish(1);
    ASSERT_EQ(watch.Next(), 1);
    exporter_.reset();
  }
  auto second = GrpcExporter::Create({.address = address});
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_TRUE((*second)->Start(&source_, &control_).ok());
  EXPECT_EQ(GrpcClient(address).Status().run_id(), "run-1");
}

}  // namespace grpc_stop_test
}  // namespace ptqwatch
