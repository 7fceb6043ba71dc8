#include "ptqwatch/client.h"

#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/eventually.h"
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

class ClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto exporter = GrpcExporter::Create({.address = "127.0.0.1:0", .allow_control = true});
    ASSERT_TRUE(exporter.ok()) << exporter.status();
    exporter_ = *std::move(exporter);
    ASSERT_TRUE(exporter_->Start(&source_, &control_).ok());
    auto client = OpenRemoteRun({.address = exporter_->address()});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  void Publish(int64_t sequence) {
    AnalyzedReport report = SampleReport();
    report.report.sequence = sequence;
    exporter_->OnReport(std::make_shared<const AnalyzedReport>(std::move(report)));
  }

  FakeStatusSource source_;
  FakeControl control_;
  std::unique_ptr<GrpcExporter> exporter_;
  std::unique_ptr<RunSource> client_;
};

TEST_F(ClientTest, ReportsAreThoseOfTheMonitor) {
  for (int64_t sequence = 1; sequence <= 3; ++sequence) Publish(sequence);
  auto reports = client_->Reports({.after_sequence = 1});
  // The exporter takes them on a thread of its own.
  ASSERT_TRUE(Eventually([&] {
    reports = client_->Reports({.after_sequence = 1});
    return !reports.ok() || reports->size() == 2;
  }));
  ASSERT_TRUE(reports.ok()) << reports.status();
  AnalyzedReport expected = SampleReport();
  expected.report.sequence = 2;
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
  exporter_->OnEvent(event);
  for (int64_t sequence = 1; sequence <= 3; ++sequence) Publish(sequence);
  Collector collector(2);
  EXPECT_TRUE(client_->Watch({}, &collector).ok());
  ASSERT_EQ(collector.reports.size(), 2u);
  EXPECT_EQ(collector.reports.back().report.sequence, 2);
  ASSERT_EQ(collector.events.size(), 1u);
  EXPECT_EQ(collector.events.front().kind, Event::Kind::kPhaseChange);
  EXPECT_EQ(collector.events.front().severity, Severity::kWarning);
}

TEST_F(ClientTest, StatusIsThatOfTheMonitor) {
  source_.Set([](MonitorStatus& status) {
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
  EXPECT_EQ(run->run.run_id, source_.run().run_id);
  EXPECT_EQ(run->run.parameters, source_.run().parameters);
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
  source_.Set([](MonitorStatus& status) { status.learning_rate = std::nan(""); });
  const auto run = client_->Status();
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->monitor.learning_rate, std::nullopt);
}

TEST_F(ClientTest, CommandsReachTheMonitor) {
  control_.answer = 3;
  EXPECT_EQ(client_->Do(TakeSnapshot{}).value(), 3);
  EXPECT_EQ(
      client_->Do(MakeSlice{.method = QuantizationMethod::kGptq, .bits = 4, .points = 5}).value(),
      3);
  control_.answer = absl::InvalidArgumentError("every = 0");
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Do(SetEvery{0}).status()));
  ASSERT_EQ(control_.commands.size(), 3u);
  EXPECT_EQ(std::get<MakeSlice>(control_.commands[1]).points, 5);
}

TEST_F(ClientTest, FindsTheServerAgainAndSaysWhenItIsAway) {
  const std::string address = exporter_->address();
  exporter_->Stop(std::chrono::milliseconds(500));
  exporter_.reset();
  const absl::Status away = client_->Status().status();
  EXPECT_TRUE(absl::IsUnavailable(away)) << away;
  EXPECT_THAT(std::string(away.message()), AllOf(HasSubstr(address), Not(HasSubstr("\n"))));
  auto again = GrpcExporter::Create({.address = address});
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_TRUE((*again)->Start(&source_, &control_).ok());
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
