#include "ptqwatch/client.h"

#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/temp_dir.h"
#include "unit/exporters/grpc/grpc_fixture.h"

namespace ptqwatch::testing {
namespace client_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// The sequences that Watch brings, until there are `wanted`.
class Collector final : public WatchListener {
 public:
  explicit Collector(size_t wanted) : wanted_(wanted) {}
  bool OnReport(const AnalyzedReport& report, int64_t /*missed*/) override {
    reports.push_back(report);
    return reports.size() < wanted_;
  }
  void OnEvent(const Event& event) override { events.push_back(event); }

  std::vector<AnalyzedReport> reports;
  std::vector<Event> events;

 private:
  const size_t wanted_;
};

class ClientTest : public GrpcTest {
 protected:
  void SetUp() override {
    CreateAndStart();
    auto client = OpenRemoteRun({.address = address()});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  template <typename Change>
  void SetMonitor(Change change) {
    run_->Set([&](RunStatus& status) { change(status.monitor); });
  }

  std::unique_ptr<RunSource> client_;
};

TEST_F(ClientTest, ReportsAreThoseOfTheMonitor) {
  for (int64_t sequence = 1; sequence <= 3; ++sequence) run_->Publish(sequence);
  const auto reports = client_->Reports({.after_sequence = 1});
  ASSERT_TRUE(reports.ok()) << reports.status();
  ASSERT_EQ(reports->size(), 2u);
  AnalyzedReport expected = SampleReport();
  expected.report.sequence = 2;
  expected.report.step = 200;
  EXPECT_EQ(ToJson(reports->front()), ToJson(expected));
  const auto small = client_->Reports({.after_sequence = 2, .without_layers = true});
  ASSERT_TRUE(small.ok()) << small.status();
  ASSERT_EQ(small->size(), 1u);
  EXPECT_TRUE(small->front().report.quantization.front().layers.empty());
}

TEST_F(ClientTest, WatchesUntilTheListenerHasEnough) {
  Event event;
  event.kind = Event::Kind::kPhaseChange;
  event.severity = Severity::kWarning;
  run_->Publish(event);
  for (int64_t sequence = 1; sequence <= 3; ++sequence) run_->Publish(sequence);
  Collector collector(2);
  EXPECT_TRUE(client_->Watch({}, &collector).ok());
  ASSERT_EQ(collector.reports.size(), 2u);
  EXPECT_EQ(collector.reports.back().report.sequence, 2);
  ASSERT_EQ(collector.events.size(), 1u);
  EXPECT_EQ(collector.events.front().kind, Event::Kind::kPhaseChange);
  EXPECT_EQ(collector.events.front().severity, Severity::kWarning);
}

TEST_F(ClientTest, StatusIsThatOfTheMonitor) {
  SetMonitor([](MonitorStatus& status) {
    status.step = 12;
    status.steps_total = 13;
    status.learning_rate = 3e-4;
    status.health = Health::kDegraded;
    status.health_reason = "a probe fails";
    status.lr_phase = LrPhase::kDecay;
    status.snapshots[static_cast<size_t>(SnapshotResult::kSkippedBusy)] = 4;
    status.overhead_ratio = 0.01;
    status.overhead_high_ratio = 0.015;
    status.overhead_comparisons = 6;
    status.every = 250;
    status.slice = {.state = SliceState::kMeasuring,
                    .number = 2,
                    .request = {.method = QuantizationMethod::kGptq, .bits = 3, .points = 11},
                    .points_done = 5,
                    .points_all = 121};
  });
  const auto run = client_->Status();
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->run.run_id, "run-1");
  const MonitorStatus& status = run->monitor;
  EXPECT_EQ(status.step, 12);
  EXPECT_EQ(status.steps_total, 13);
  EXPECT_EQ(status.learning_rate, 3e-4);
  EXPECT_EQ(status.health, Health::kDegraded);
  EXPECT_EQ(status.health_reason, "a probe fails");
  EXPECT_EQ(status.lr_phase, LrPhase::kDecay);
  EXPECT_EQ(status.snapshots[static_cast<size_t>(SnapshotResult::kSkippedBusy)], 4);
  EXPECT_EQ(status.overhead_ratio, 0.01);
  EXPECT_EQ(status.overhead_low_ratio, std::nullopt);
  EXPECT_EQ(status.overhead_high_ratio, 0.015);
  EXPECT_EQ(status.overhead_comparisons, 6);
  EXPECT_EQ(status.tokens, std::nullopt);
  EXPECT_EQ(status.every, 250);
  EXPECT_EQ(status.slice.state, SliceState::kMeasuring);
  EXPECT_EQ(status.slice.request.method, QuantizationMethod::kGptq);
  EXPECT_EQ(status.slice.request.bits, 3);
  EXPECT_EQ(status.slice.points_done, 5);
  const auto runs = client_->Runs();
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_EQ(runs->size(), 1u);
  EXPECT_EQ(runs->front().monitor.steps_total, 13);
}

TEST_F(ClientTest, ALearningRateThatIsNotFiniteIsNotZero) {
  SetMonitor([](MonitorStatus& status) { status.learning_rate = std::nan(""); });
  const auto run = client_->Status();
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->monitor.learning_rate, std::nullopt);
}

TEST_F(ClientTest, CommandsReachTheMonitor) {
  run_->control.answer = 3;
  EXPECT_EQ(client_->Do(TakeSnapshot{}).value(), 3);
  EXPECT_EQ(
      client_->Do(MakeSlice{.method = QuantizationMethod::kGptq, .bits = 4, .points = 5}).value(),
      3);
  run_->control.answer = absl::InvalidArgumentError("every = 0");
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Do(SetEvery{0}).status()));
  ASSERT_EQ(run_->control.commands.size(), 3u);
  EXPECT_EQ(std::get<MakeSlice>(run_->control.commands[1]).points, 5);
}

TEST_F(ClientTest, FindsTheServerAgainAndSaysWhenItIsAway) {
  const std::string former = address();
  run_.reset();
  server_.reset();
  const absl::Status away = client_->Status().status();
  EXPECT_TRUE(absl::IsUnavailable(away)) << away;
  EXPECT_THAT(std::string(away.message()), AllOf(HasSubstr(former), Not(HasSubstr("\n"))));
  auto again = internal::GrpcServer::Start({.listen = {.kind = "grpc", .address = former}}, &runs_);
  ASSERT_TRUE(again.ok()) << again.status();
  server_ = *std::move(again);
  run_ = MakeRun("");
  run_->Show();
  EXPECT_TRUE(client_->Status().ok());
  EXPECT_TRUE(absl::IsPermissionDenied(client_->Do(Pause{}).status()));
}

TEST(ClientCreate, NamesTheOptionThatIsWrong) {
  TempDir directory;
  const std::string empty = directory.File("empty");
  WriteFile(empty, "");
  struct Case {
    ClientOptions options;
    std::string_view named;
    std::string_view value;
  };
  const Case cases[] = {
      {{.address = "host:port"}, "ClientOptions::address", "host:port"},
      {{.ca_file = "/none/ca.pem"}, "ClientOptions::ca_file", "/none/ca.pem"},
      {{.token_file = empty}, "ClientOptions::token_file", "empty"},
      {{.certificate_file = "me.pem"}, "private_key_file", "both"},
      {{.timeout = std::chrono::milliseconds(0)}, "ClientOptions::timeout", "0 ms"},
  };
  for (const Case& wrong : cases) {
    const absl::Status status = OpenRemoteRun(wrong.options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << wrong.named;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(wrong.named), HasSubstr(wrong.value)));
  }
}

}  // namespace client_test
}  // namespace ptqwatch::testing
