#include "ptqwatch/prometheus_exporter.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "httplib.h"
#include "support/fake_status_source.h"
#include "support/raw_client.h"
#include "support/sample_report.h"

namespace ptqwatch {
namespace prometheus_exporter_test {

using std::chrono::seconds;
using ::testing::AllOf;
using testing::FakeStatusSource;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using testing::PortOf;
using testing::SampleLayer;
using testing::SampleReport;
using ::testing::StartsWith;

class PrometheusExporterTest : public ::testing::Test {
 protected:
  void Create(int max_layers = 64) {
    auto exporter =
        PrometheusExporter::Create({.address = "127.0.0.1:0", .max_layers = max_layers});
    ASSERT_TRUE(exporter.ok()) << exporter.status();
    exporter_ = *std::move(exporter);
  }
  void CreateAndStart(int max_layers = 64) {
    Create(max_layers);
    ASSERT_TRUE(exporter_->Start(&source_, nullptr).ok());
  }
  // As the monitor does.
  void Publish(std::shared_ptr<const AnalyzedReport> report) {
    source_.SetLatest(report);
    exporter_->OnReport(std::move(report));
  }
  httplib::Result Get(const char* path) {
    return httplib::Client("127.0.0.1", PortOf(exporter_->address())).Get(path);
  }
  static std::shared_ptr<const AnalyzedReport> Shared(AnalyzedReport report) {
    return std::make_shared<const AnalyzedReport>(std::move(report));
  }

  FakeStatusSource source_;
  std::unique_ptr<PrometheusExporter> exporter_;
};

TEST_F(PrometheusExporterTest, ServesMetrics) {
  CreateAndStart();
  EXPECT_EQ(exporter_->name(), "prometheus");
  Publish(Shared(SampleReport()));
  const httplib::Result page = Get("/metrics");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  EXPECT_EQ(page->get_header_value("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_THAT(page->body, HasSubstr("\nptqwatch_step 16010\n"));
  EXPECT_THAT(page->body, HasSubstr("\nptqwatch_snapshot_step 16000\n"));
  EXPECT_THAT(page->body, HasSubstr("ptqwatch_quantization_loss_delta_nats{method=\"gptq\","
                                    "bits=\"3\"} 0.208\n"));
  EXPECT_EQ(page->body.back(), '\n');
}

TEST_F(PrometheusExporterTest, ShowsTheNewestReportAndTheLiveCounters) {
  AnalyzedReport report = SampleReport();
  report.report.step = 800;
  source_.SetLatest(Shared(report));
  CreateAndStart();
  EXPECT_THAT(Get("/metrics")->body, HasSubstr("\nptqwatch_snapshot_step 800\n"));
  report.report.step = 1600;
  Publish(Shared(report));
  source_.Set([](MonitorStatus& status) { status.step = 1700; });
  const std::string body = Get("/metrics")->body;
  EXPECT_THAT(body, HasSubstr("\nptqwatch_snapshot_step 1600\n"));
  EXPECT_THAT(body, HasSubstr("\nptqwatch_step 1700\n"));
}

TEST_F(PrometheusExporterTest, CompressesForThoseWhoAsk) {
  CreateAndStart();
  const httplib::Result page = httplib::Client("127.0.0.1", PortOf(exporter_->address()))
                                   .Get("/metrics", {{"Accept-Encoding", "gzip"}});
  ASSERT_TRUE(page);
  EXPECT_THAT(page->body, HasSubstr("\nptqwatch_step 16010\n"));
}

TEST_F(PrometheusExporterTest, AnswersUnavailableBeforeStart) {
  Create();
  EXPECT_EQ(Get("/healthz")->status, 200);
  for (const char* path : {"/metrics", "/readyz"}) {
    const httplib::Result page = Get(path);
    ASSERT_TRUE(page);
    EXPECT_EQ(page->status, 503) << path;
  }
  Publish(Shared(SampleReport()));
  EXPECT_EQ(Get("/metrics")->status, 503);
}

TEST_F(PrometheusExporterTest, SaysHowTheMonitorIs) {
  CreateAndStart();
  EXPECT_EQ(Get("/readyz")->body, "{\"health\":\"ok\",\"step\":16010}\n");
  EXPECT_EQ(Get("/readyz")->status, 200);
  EXPECT_EQ(Get("/healthz")->get_header_value("Content-Type"), "application/json");

  Publish(Shared(SampleReport()));
  EXPECT_THAT(
      Get("/healthz")->body,
      MatchesRegex("\\{\"health\":\"ok\",\"step\":16010,\"report_age_seconds\":[0-9.]+\\}\n"));
  AnalyzedReport later = SampleReport();
  later.report.snapshot_time_unix_seconds = 1e12;  // a clock that was set back
  Publish(Shared(later));
  EXPECT_THAT(Get("/healthz")->body, HasSubstr("\"report_age_seconds\":0."));

  const auto status_with = [&](Health health) {
    source_.Set([&](MonitorStatus& status) { status.health = health; });
    EXPECT_EQ(Get("/healthz")->status, 200);
    return Get("/readyz")->status;
  };
  EXPECT_EQ(status_with(Health::kStarting), 200);
  EXPECT_EQ(status_with(Health::kDegraded), 503);
  EXPECT_THAT(Get("/healthz")->body, StartsWith("{\"health\":\"degraded\""));
  EXPECT_EQ(status_with(Health::kStopped), 503);
  source_.Set([&](MonitorStatus& status) { status.health_reason = "a \"closure\" \xff"; });
  EXPECT_EQ(status_with(Health::kInert), 503);
  EXPECT_THAT(Get("/healthz")->body,
              StartsWith("{\"health\":\"inert\",\"reason\":\"a \\\"closure\\\" \xEF\xBF\xBD\""));
  EXPECT_EQ(Get("/metrics")->status, 200);
}

TEST_F(PrometheusExporterTest, RefusesOtherPathsAndMethods) {
  CreateAndStart();
  EXPECT_EQ(Get("/metrics/x")->status, 404);
  httplib::Client client("127.0.0.1", PortOf(exporter_->address()));
  EXPECT_EQ(client.Post("/metrics", "x", "text/plain")->status, 405);
  EXPECT_EQ(client.Delete("/healthz")->status, 405);
}

TEST_F(PrometheusExporterTest, CapsLayers) {
  CreateAndStart(1);
  Publish(Shared(SampleReport()));
  const std::string body = Get("/metrics")->body;
  EXPECT_THAT(body, HasSubstr("{layer=\"blocks.1.weight\",method=\"gptq\",bits=\"3\"} 0.03\n"));
  EXPECT_THAT(body, HasSubstr("{layer=\"_overflow\",method=\"gptq\",bits=\"3\"} 0.02\n"));
  EXPECT_THAT(body, Not(HasSubstr("{layer=\"blocks.0.weight\",method")));
  // Each family ranks its own values.
  EXPECT_THAT(body, HasSubstr("trace{layer=\"blocks.0.weight\"} 200.25\n"));
  EXPECT_THAT(body, HasSubstr("trace{layer=\"_overflow\"} 168.25\n"));
}

TEST_F(PrometheusExporterTest, NamesTheOptionThatIsWrong) {
  const auto bad_port = PrometheusExporter::Create({.address = "127.0.0.1:99999"});
  EXPECT_EQ(bad_port.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad_port.status().message()),
              StartsWith("http address '127.0.0.1:99999': "));
  const auto bad_cap = PrometheusExporter::Create({.address = "127.0.0.1:0", .max_layers = -1});
  EXPECT_EQ(bad_cap.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad_cap.status().message()), HasSubstr("max_layers"));
}

TEST_F(PrometheusExporterTest, ServesOtherMachinesOnlyWhereAllowed) {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "192.0.2.1:0"}) {
    const auto refused = PrometheusExporter::Create({.address = address});
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(refused.status().message()),
                AllOf(HasSubstr(address), HasSubstr("PrometheusOptions::allow_remote"),
                      HasSubstr("false")));
  }
  const auto allowed = PrometheusExporter::Create({.address = "0.0.0.0:0", .allow_remote = true});
  ASSERT_TRUE(allowed.ok()) << allowed.status();
  FakeStatusSource source;
  ASSERT_TRUE((*allowed)->Start(&source, nullptr).ok());
  const std::string port = std::to_string(PortOf((*allowed)->address()));
  EXPECT_THAT(testing::Get("127.0.0.1:" + port, "/metrics"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(PrometheusExporterTest, FailsOnABusyPort) {
  Create();
  const auto second = PrometheusExporter::Create(
      {.address = exporter_->address(), .on_failure = OnFailure::kError});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(exporter_->address()));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("Address already in use"));
}

TEST_F(PrometheusExporterTest, IsInertOnABusyPortByDefault) {
  Create();
  const auto second = PrometheusExporter::Create({.address = exporter_->address()});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->address(), "");
  FakeStatusSource source;
  EXPECT_EQ((*second)->Start(&source, nullptr).code(), absl::StatusCode::kUnavailable);
  (*second)->OnReport(Shared(SampleReport()));
  (*second)->Stop(std::chrono::seconds(1));
  // What can never work is found when the program is first run.
  EXPECT_EQ(PrometheusExporter::Create({.address = "nowhere"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(PrometheusExporterTest, StopsInTimeWithAClientThatStays) {
  CreateAndStart();
  httplib::Client stays("127.0.0.1", PortOf(exporter_->address()));
  stays.set_keep_alive(true);
  ASSERT_TRUE(stays.Get("/metrics"));
  testing::RawClient idle(exporter_->address());
  const auto start = std::chrono::steady_clock::now();
  exporter_->Stop(seconds(2));
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(2));
  exporter_->Stop(seconds(2));
  EXPECT_FALSE(testing::RawClient(exporter_->address()).connected());
  Publish(Shared(SampleReport()));
}

TEST_F(PrometheusExporterTest, MayBeDestroyedWithoutStartOrStop) {
  Create();
  exporter_.reset();
  CreateAndStart();
  exporter_.reset();
}

TEST_F(PrometheusExporterTest, IsScrapedWhileReportsCome) {
  CreateAndStart();
  std::atomic<bool> done{false};
  std::atomic<int> good{0}, bad{0};
  std::vector<std::thread> scrapers;
  for (int i = 0; i < 3; ++i) {
    scrapers.emplace_back([&] {
      for (int k = 0; k < 20; ++k) {
        const std::string page = testing::Get(exporter_->address(), "/metrics");
        ++(page.find("ptqwatch_training_stall_seconds_sum") != std::string::npos ? good : bad);
      }
    });
  }
  std::thread reporter([&] {
    AnalyzedReport report = SampleReport();
    while (!done) {
      ++report.report.step;
      Publish(Shared(report));
      source_.CountDrop("journal", "queue_full");
      source_.Set([&](MonitorStatus& status) { status.step = report.report.step; });
    }
  });
  for (std::thread& scraper : scrapers) scraper.join();
  done = true;
  reporter.join();
  EXPECT_EQ(good, 60);
  EXPECT_EQ(bad, 0);
}

}  // namespace prometheus_exporter_test
}  // namespace ptqwatch
