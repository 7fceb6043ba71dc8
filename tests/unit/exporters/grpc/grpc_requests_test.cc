// Tests of the unary calls of the service.

#include <string>

#include "command_proto.h"
#include "gmock/gmock.h"
#include "grpcpp/impl/client_unary_call.h"
#include "gtest/gtest.h"
#include "unit/exporters/grpc/grpc_fixture.h"

namespace ptqwatch {
namespace grpc_requests_test {

using grpc::StatusCode;
using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::GrpcClient;
using ::testing::HasSubstr;
using testing::Watch;

class GrpcRequestsTest : public testing::GrpcTest {
 protected:
  template <typename Change>
  void SetMonitor(Change change) {
    run_->Set([&](RunStatus& status) { change(status.monitor); });
  }
};

TEST_F(GrpcRequestsTest, GivesTheStatusOfTheRun) {
  CreateAndStart();
  run_->Set([](RunStatus& status) { status.run.attempt = 3; });
  SetMonitor([](MonitorStatus& status) {
    status.steps_total = 16000;
    status.learning_rate = 0.01;
    status.lr_phase = LrPhase::kDecay;
    status.health = Health::kDegraded;
    status.busy = true;
    status.snapshots = {7, 1, 0, 0, 0};
    status.overhead_ratio = 0.01;
    status.duty_cycle = 0.5;
    status.every = 500;
    status.paused = true;
    status.dropped_reports = {{"journal", "queue_full", 1}};
  });
  Watch watch(address());
  run_->Publish(12);
  EXPECT_EQ(watch.Next(), 12);
  const v1::GetStatusResponse status = GrpcClient(address()).Status();
  EXPECT_EQ(status.run_id(), "run-1");
  EXPECT_EQ(status.attempt(), 3);
  EXPECT_EQ(status.fingerprint(), "f00d");
  EXPECT_EQ(status.device(), "cpu");
  EXPECT_EQ(status.version(), "0.1.0");
  EXPECT_EQ(status.health(), v1::HEALTH_DEGRADED);
  EXPECT_TRUE(status.busy());
  EXPECT_EQ(status.step(), 16010);
  EXPECT_EQ(status.steps_total(), 16000);
  EXPECT_EQ(status.learning_rate(), 0.01);
  EXPECT_FALSE(status.has_tokens());
  EXPECT_FALSE(status.has_training_loss_nats());
  EXPECT_EQ(status.lr_phase(), v1::LR_PHASE_DECAY);
  EXPECT_EQ(status.snapshots().size(), static_cast<size_t>(kSnapshotResults));
  EXPECT_EQ(status.snapshots().at("taken"), 7);
  EXPECT_EQ(status.snapshots().at("skipped_busy"), 1);
  EXPECT_EQ(status.overhead_ratio(), 0.01);
  EXPECT_EQ(status.duty_cycle(), 0.5);
  EXPECT_EQ(status.every(), 500);
  EXPECT_TRUE(status.paused());
  EXPECT_EQ(status.last_sequence(), 12);
  EXPECT_EQ(status.subscribers(), 1);
  ASSERT_EQ(status.dropped_reports_size(), 1);
  EXPECT_EQ(status.dropped_reports(0).exporter(), "journal");
  EXPECT_EQ(status.dropped_reports(0).count(), 1);
}

TEST_F(GrpcRequestsTest, CarriesEveryCommand) {
  CreateAndStart();
  run_->control.answer = 7;
  const std::vector<Command> commands = {TakeSnapshot{},
                                         Pause{},
                                         Resume{},
                                         SetEvery{250},
                                         MakeSlice{QuantizationMethod::kGptq, 3, 5, 900},
                                         StartCooldown{3200},
                                         CancelCooldown{}};
  ASSERT_EQ(commands.size(), std::variant_size_v<Command>);
  for (const Command& command : commands) {
    v1::DoRequest request;
    internal::ToProto(command, &request);
    ASSERT_NE(request.command_case(), v1::DoRequest::COMMAND_NOT_SET) << command.index();
    v1::DoResponse response;
    ASSERT_TRUE(GrpcClient(address()).Do(request, &response).ok()) << command.index();
    EXPECT_EQ(response.number(), 7);
    EXPECT_EQ(run_->control.commands.back().index(), command.index());
  }
  EXPECT_EQ(std::get<SetEvery>(run_->control.commands[3]).steps, 250);
  const auto& slice = std::get<MakeSlice>(run_->control.commands[4]);
  EXPECT_EQ(slice.method, QuantizationMethod::kGptq);
  EXPECT_EQ(slice.bits, 3);
  EXPECT_EQ(slice.points, 5);
  EXPECT_EQ(slice.at_step, 900);
  EXPECT_EQ(std::get<StartCooldown>(run_->control.commands[5]).decay_steps, 3200);
}

TEST_F(GrpcRequestsTest, RefusesCommandsThatItDoesNotKnow) {
  CreateAndStart();
  GrpcClient client(address());
  v1::DoRequest request;
  v1::DoResponse response;
  EXPECT_EQ(client.Do(request, &response).error_code(), StatusCode::INVALID_ARGUMENT);
  request.mutable_slice()->set_method("gtpq");
  const grpc::Status unknown = client.Do(request, &response);
  EXPECT_EQ(unknown.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(unknown.error_message(), HasSubstr("gtpq"));
  EXPECT_TRUE(run_->control.commands.empty());
  request.mutable_slice()->set_method("gptq");
  ASSERT_TRUE(client.Do(request, &response).ok());
  EXPECT_EQ(std::get<MakeSlice>(run_->control.commands[0]).points, 21);
}

TEST_F(GrpcRequestsTest, PassesRefusalsOn) {
  CreateAndStart();
  v1::DoRequest request;
  request.mutable_pause();
  v1::DoResponse response;
  run_->control.answer = absl::InvalidArgumentError("this run has rtn 4 \xFF");
  const grpc::Status refused = GrpcClient(address()).Do(request, &response);
  EXPECT_EQ(refused.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("this run has rtn 4"));
  run_->control.answer = absl::FailedPreconditionError("no slice");
  EXPECT_EQ(GrpcClient(address()).Do(request, &response).error_code(),
            StatusCode::FAILED_PRECONDITION);
}

TEST_F(GrpcRequestsTest, TellsHowFarASliceIs) {
  CreateAndStart();
  EXPECT_FALSE(GrpcClient(address()).Status().has_slice());
  SetMonitor([](MonitorStatus& status) {
    status.slice.state = SliceState::kMeasuring;
    status.slice.number = 2;
    status.slice.request = {.method = QuantizationMethod::kGptq, .bits = 3, .points = 5};
    status.slice.points_done = 7;
    status.slice.points_all = 28;
  });
  v1::SliceStatus slice = GrpcClient(address()).Status().slice();
  EXPECT_EQ(slice.state(), v1::SLICE_STATE_MEASURING);
  EXPECT_EQ(slice.number(), 2);
  EXPECT_EQ(slice.method(), "gptq");
  EXPECT_EQ(slice.bits(), 3);
  EXPECT_EQ(slice.points(), 5);
  EXPECT_EQ(slice.points_done(), 7);
  EXPECT_EQ(slice.points_all(), 28);
  SetMonitor([](MonitorStatus& status) {
    status.slice.state = SliceState::kDone;
    status.slice.path = "runs/a/slice-9.json";
  });
  slice = GrpcClient(address()).Status().slice();
  EXPECT_EQ(slice.state(), v1::SLICE_STATE_DONE);
  EXPECT_EQ(slice.path(), "runs/a/slice-9.json");
  SetMonitor([](MonitorStatus& status) {
    status.slice.state = SliceState::kFailed;
    status.slice.error = "disk full";
  });
  EXPECT_EQ(GrpcClient(address()).Status().slice().error(), "disk full");
}

TEST_F(GrpcRequestsTest, ListsReportsPageByPage) {
  CreateAndStart();
  v1::ListReportsRequest request;
  v1::ListReportsResponse page;
  GrpcClient client(address());
  ASSERT_TRUE(client.List(request, &page).ok());
  EXPECT_EQ(page.reports_size(), 0);
  EXPECT_EQ(page.oldest_sequence(), 0);
  EXPECT_FALSE(page.more());

  for (int64_t sequence = 1; sequence <= 10; ++sequence) run_->Publish(sequence, 1 << 20);
  std::vector<int64_t> sequences;
  int pages = 0;
  do {
    request.set_after_sequence(sequences.empty() ? 0 : sequences.back());
    const grpc::Status status =
        client.List(request, &page);  // within the default limit of a client, 4 MiB
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_GT(page.reports_size(), 0);
    for (const v1::Report& report : page.reports()) sequences.push_back(report.sequence());
    ++pages;
  } while (page.more());
  EXPECT_THAT(sequences, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_EQ(pages, 5);
  EXPECT_EQ(page.oldest_sequence(), 1);

  request.set_after_sequence(4);
  request.set_limit(1);
  ASSERT_TRUE(client.List(request, &page).ok());
  EXPECT_EQ(page.reports_size(), 1);
  EXPECT_EQ(page.reports(0).sequence(), 5);
  EXPECT_EQ(page.reports(0).quantization(0).layers_size(), 2);
  EXPECT_TRUE(page.more());
  request.set_without_layers(true);
  request.set_after_sequence(9);
  ASSERT_TRUE(client.List(request, &page).ok());
  EXPECT_EQ(page.reports(0).quantization(0).layers_size(), 0);
  EXPECT_FALSE(page.more());
}

TEST_F(GrpcRequestsTest, ListsAReportThatIsLargerThanAPage) {
  CreateAndStart();
  run_->Publish(1, 5 << 20);
  run_->Publish(2);
  v1::ListReportsResponse page;
  EXPECT_EQ(GrpcClient(address()).List({}, &page).error_code(), StatusCode::RESOURCE_EXHAUSTED);
  ASSERT_TRUE(GrpcClient(address(), 16 << 20).List({}, &page).ok());
  EXPECT_EQ(page.reports_size(), 1);
  EXPECT_TRUE(page.more());
}

TEST_F(GrpcRequestsTest, RefusesListsThatItCannotGive) {
  CreateAndStart();
  run_->Publish(3);
  GrpcClient client(address());
  const auto refusal = [&](int64_t after, int32_t limit, const std::string& run_id = "") {
    v1::ListReportsRequest request;
    request.set_after_sequence(after);
    request.set_limit(limit);
    request.set_run_id(run_id);
    v1::ListReportsResponse page;
    return client.List(request, &page);
  };
  EXPECT_EQ(refusal(-2, 0).error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refusal(0, -7).error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refusal(0, -7).error_message(), HasSubstr("-7"));
  EXPECT_EQ(refusal(4, 0).error_code(), StatusCode::OUT_OF_RANGE);
  EXPECT_THAT(refusal(4, 0).error_message(), AllOf(HasSubstr("4"), HasSubstr("3")));
  EXPECT_EQ(refusal(0, 0, "other").error_code(), StatusCode::NOT_FOUND);
  EXPECT_TRUE(refusal(3, 0, "run-1").ok());
}

TEST_F(GrpcRequestsTest, RefusesInvalidRequests) {
  CreateAndStart();
  GrpcClient client(address());
  const grpc::Slice bytes("\x08");  // a tag without its value
  const grpc::ByteBuffer request(&bytes, 1);
  grpc::ByteBuffer response;
  grpc::ClientContext context;
  const grpc::Status status = grpc::internal::BlockingUnaryCall(
      client.channel.get(),
      grpc::internal::RpcMethod("/ptqwatch.v1.MonitorService/ListReports",
                                grpc::internal::RpcMethod::NORMAL_RPC, client.channel),
      &context, request, &response);
  EXPECT_FALSE(status.ok());

  v1::ListReportsRequest large;
  large.set_run_id(std::string(100'000, 'x'));
  v1::ListReportsResponse page;
  EXPECT_EQ(client.List(large, &page).error_code(), StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(GrpcRequestsTest, DoesNotUnpackCompressedRequests) {
  CreateAndStart();
  v1::ListReportsRequest large;
  large.set_run_id(std::string(32 << 20, 'x'));  // 32 KiB on the wire
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    v1::ListReportsResponse page;
    const grpc::Status status = GrpcClient(address()).stub->ListReports(&context, large, &page);
    EXPECT_EQ(status.error_code(), StatusCode::UNIMPLEMENTED) << status.error_message();
  }
}

TEST_F(GrpcRequestsTest, IsUnavailableBeforeThereIsARun) {
  Create();
  GrpcClient client(address());
  v1::ListReportsResponse page;
  EXPECT_EQ(client.List({}, &page).error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(client.List({}, &page).error_message(), "there is no run yet");
  EXPECT_EQ(Watch(address()).Finish().error_code(), StatusCode::UNAVAILABLE);
  grpc::ClientContext context;
  v1::GetStatusResponse status;
  EXPECT_EQ(client.stub->GetStatus(&context, {}, &status).error_code(), StatusCode::UNAVAILABLE);
  run_->Publish(1);  // from its journal
  run_->Show();
  EXPECT_EQ(client.Status().last_sequence(), 1);
}

TEST_F(GrpcRequestsTest, TakesNoCommandsUnlessAllowed) {
  CreateAndStart({.allow_control = false});
  v1::DoRequest request;
  request.mutable_snapshot();
  v1::DoResponse response;
  const grpc::Status refused = GrpcClient(address()).Do(request, &response);
  EXPECT_EQ(refused.error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(refused.error_message(), HasSubstr("allow_control"));
  EXPECT_TRUE(run_->control.commands.empty());
}

TEST_F(GrpcRequestsTest, ServesRunsByTheirNames) {
  Create();
  const auto b = MakeRun("b"), a = MakeRun("a");
  const auto ask = [&](const std::string& run, v1::GetStatusResponse* response) {
    grpc::ClientContext context;
    v1::GetStatusRequest request;
    request.set_run_id(run);
    return GrpcClient(address()).stub->GetStatus(&context, request, response);
  };
  for (int64_t sequence = 1; sequence <= 3; ++sequence) b->Publish(sequence);
  b->Show();
  v1::GetStatusResponse status;
  ASSERT_TRUE(ask("", &status).ok());
  EXPECT_EQ(status.run(), "b");
  a->Set([](RunStatus& changed) { changed.run.run_id = "run-2"; });
  a->Show();
  const grpc::Status unnamed = ask("", &status);
  EXPECT_EQ(unnamed.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(unnamed.error_message(), HasSubstr("'a', 'b'"));
  EXPECT_EQ(ask("c", &status).error_code(), StatusCode::NOT_FOUND);
  ASSERT_TRUE(ask("run-1", &status).ok());  // by its id
  EXPECT_EQ(status.run(), "b");

  grpc::ClientContext context;
  v1::ListRunsResponse all;
  ASSERT_TRUE(GrpcClient(address()).stub->ListRuns(&context, {}, &all).ok());
  ASSERT_EQ(all.runs_size(), 2);
  EXPECT_EQ(all.runs(0).run(), "a");
  EXPECT_EQ(all.runs(1).last_sequence(), 3);

  v1::DoRequest request;
  request.mutable_every()->set_steps(9);
  request.set_run_id("b");
  v1::DoResponse response;
  ASSERT_TRUE(GrpcClient(address()).Do(request, &response).ok());
  ASSERT_EQ(b->control.commands.size(), 1u);
  EXPECT_EQ(std::get<SetEvery>(b->control.commands[0]).steps, 9);
  EXPECT_TRUE(a->control.commands.empty());

  a->End();
  ASSERT_TRUE(ask("", &status).ok());
  EXPECT_EQ(status.run(), "b");
}

}  // namespace grpc_requests_test
}  // namespace ptqwatch
