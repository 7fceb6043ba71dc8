#include "ptqwatch/grpc_hub.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "grpc_fixture.h"
#include "grpcpp/create_channel_posix.h"

namespace ptqwatch::testing {
namespace grpc_hub_test {

using grpc::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Event EventOf(Event::Kind kind) {
  Event event;
  event.kind = kind;
  return event;
}

class GrpcHubTest : public ::testing::Test {
 protected:
  struct Run {
    FakeStatusSource source;
    FakeControl control;
    std::unique_ptr<Exporter> exporter;
  };

  void Create(GrpcOptions options = {}) {
    options.address = "127.0.0.1:0";
    auto hub = GrpcHub::Create(options);
    ASSERT_TRUE(hub.ok()) << hub.status();
    hub_ = *std::move(hub);
  }
  // With reports 1 to `past` from before it is served.
  Run& AddRun(const std::string& name, int64_t past = 0) {
    runs_.push_back(std::make_unique<Run>());
    Run& run = *runs_.back();
    auto exporter = hub_->AddRun(name);
    EXPECT_TRUE(exporter.ok()) << exporter.status();
    run.exporter = *std::move(exporter);
    for (int64_t sequence = 1; sequence <= past; ++sequence) Publish(run, sequence);
    EXPECT_TRUE(run.exporter->Start(&run.source, &run.control).ok());
    return run;
  }
  static void Publish(Run& run, int64_t sequence) {
    AnalyzedReport report = SampleReport();
    report.report.sequence = sequence;
    run.exporter->OnReport(std::make_shared<const AnalyzedReport>(std::move(report)));
  }
  grpc::Status Ask(const std::string& run_id, v1::GetStatusResponse* response) {
    grpc::ClientContext context;
    v1::GetStatusRequest request;
    request.set_run_id(run_id);
    return GrpcClient(hub_->address()).stub->GetStatus(&context, request, response);
  }

  std::vector<std::unique_ptr<Run>> runs_;
  std::unique_ptr<GrpcHub> hub_;
  v1::GetStatusResponse status_;
};

TEST_F(GrpcHubTest, ServesRunsByTheirNames) {
  Create();
  EXPECT_EQ(Ask("", &status_).error_code(), StatusCode::UNAVAILABLE);
  AddRun("b", 3);
  ASSERT_TRUE(Ask("", &status_).ok());
  EXPECT_EQ(status_.run(), "b");
  AddRun("a", 5);
  const grpc::Status unnamed = Ask("", &status_);
  EXPECT_EQ(unnamed.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(unnamed.error_message(), HasSubstr("'a', 'b'"));
  EXPECT_EQ(Ask("c", &status_).error_code(), StatusCode::NOT_FOUND);
  ASSERT_TRUE(Ask("a", &status_).ok());
  EXPECT_EQ(status_.last_sequence(), 5);
  ASSERT_TRUE(Ask("run-1", &status_).ok());  // by its id
  EXPECT_FALSE(hub_->AddRun("a").ok());

  grpc::ClientContext context;
  v1::ListRunsResponse all;
  ASSERT_TRUE(GrpcClient(hub_->address()).stub->ListRuns(&context, {}, &all).ok());
  ASSERT_EQ(all.runs_size(), 2);
  EXPECT_EQ(all.runs(0).run(), "a");
  EXPECT_EQ(all.runs(1).last_sequence(), 3);

  runs_[1]->exporter->Stop(std::chrono::seconds(5));
  ASSERT_TRUE(Ask("", &status_).ok());
  EXPECT_EQ(status_.run(), "b");
  EXPECT_TRUE(hub_->AddRun("a").ok());
}

TEST_F(GrpcHubTest, StreamsThePastAndThenWhatComes) {
  Create({.queue_reports = 2});
  Run& run = AddRun("a", 100);
  Watch watch(hub_->address(), 0, false, "a");
  for (int64_t sequence = 1; sequence <= 100; ++sequence) ASSERT_EQ(watch.Next(), sequence);
  Publish(run, 101);
  EXPECT_EQ(watch.Next(), 101);
}

TEST_F(GrpcHubTest, AStoppedRunCanStillBeRead) {
  Create();
  Run& run = AddRun("a", 2);
  Watch before(hub_->address(), 2);
  run.exporter->OnEvent(EventOf(Event::Kind::kStopped));
  const grpc::Status ended = before.Finish();
  EXPECT_EQ(ended.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_THAT(ended.error_message(), HasSubstr("stopped"));
  Watch after(hub_->address(), 0);
  EXPECT_EQ(after.Next(), 1);
  EXPECT_EQ(after.Next(), 2);
  EXPECT_EQ(after.Finish().error_code(), StatusCode::UNAVAILABLE);
  // The next attempt.
  run.exporter->OnEvent(EventOf(Event::Kind::kResumed));
  Watch resumed(hub_->address(), 2);
  Publish(run, 3);
  EXPECT_EQ(resumed.Next(), 3);
}

TEST_F(GrpcHubTest, GivesCommandsToTheirRun) {
  Create({.allow_control = true});
  AddRun("a");
  Run& b = AddRun("b");
  v1::DoRequest request;
  request.mutable_every()->set_steps(9);
  request.set_run_id("b");
  v1::DoResponse response;
  ASSERT_TRUE(GrpcClient(hub_->address()).Do(request, &response).ok());
  ASSERT_EQ(b.control.commands.size(), 1u);
  EXPECT_EQ(std::get<SetEvery>(b.control.commands[0]).steps, 9);
  EXPECT_TRUE(runs_[0]->control.commands.empty());
}

TEST_F(GrpcHubTest, AnAddressInUseIsAnError) {
  Create();
  EXPECT_EQ(GrpcHub::Create({.address = hub_->address()}).status().code(),
            absl::StatusCode::kUnavailable);
}

class GrpcControlTest : public GrpcExporterTest {};

TEST_F(GrpcControlTest, IsOffUnlessAllowed) {
  allow_control_ = false;
  CreateAndStart();
  GrpcClient client(address());
  v1::DoRequest request;
  request.mutable_snapshot();
  v1::DoResponse response;
  const grpc::Status refused = client.Do(request, &response);
  EXPECT_EQ(refused.error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(refused.error_message(), HasSubstr("allow_control"));
  EXPECT_TRUE(control_.commands.empty());
  EXPECT_EQ(client.Status().run_id(), "run-1");
}

}  // namespace grpc_hub_test
}  // namespace ptqwatch::testing
