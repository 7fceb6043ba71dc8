#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "support/sample_report.h"
#include "unit/exporters/http/http_fixture.h"

namespace ptqwatch {
namespace web_server_test {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using testing::PortOf;
using testing::SampleLayer;
using testing::SampleReport;
using ::testing::StartsWith;

class WebServerTest : public testing::HttpTest {};

TEST_F(WebServerTest, ServesMetrics) {
  Start();
  run_->Publish(SampleReport());
  const httplib::Result page = Get("/metrics");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  EXPECT_EQ(page->get_header_value("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_THAT(page->body, HasSubstr("\nptqwatch_step 16010\n"));
  EXPECT_THAT(page->body, HasSubstr("\nptqwatch_snapshot_step 16000\n"));
  EXPECT_THAT(page->body, HasSubstr("ptqwatch_quantization_loss_delta_nats{method=\"gptq\","
                                    "bits=\"3\",format=\"int\"} 0.208\n"));
  EXPECT_EQ(page->body.back(), '\n');
}

TEST_F(WebServerTest, ShowsTheNewestReportAndTheLiveCounters) {
  AnalyzedReport report = SampleReport();
  report.report.step = 800;
  Start();
  run_->Publish(report);
  EXPECT_THAT(Get("/metrics")->body, HasSubstr("\nptqwatch_snapshot_step 800\n"));
  report.report.step = 1600;
  ++report.report.sequence;
  run_->Publish(report);
  SetMonitor([](MonitorStatus& status) { status.step = 1700; });
  const std::string body = Get("/metrics")->body;
  EXPECT_THAT(body, HasSubstr("\nptqwatch_snapshot_step 1600\n"));
  EXPECT_THAT(body, HasSubstr("\nptqwatch_step 1700\n"));
}

TEST_F(WebServerTest, CompressesForThoseWhoAsk) {
  Start();
  const httplib::Result page = httplib::Client("127.0.0.1", PortOf(address()))
                                   .Get("/metrics", {{"Accept-Encoding", "gzip"}});
  ASSERT_TRUE(page);
  EXPECT_THAT(page->body, HasSubstr("\nptqwatch_step 16010\n"));
}

TEST_F(WebServerTest, AnswersUnavailableBeforeThereIsARun) {
  Create();
  EXPECT_EQ(Get("/healthz")->status, 200);
  for (const char* path : {"/metrics", "/readyz"}) {
    const httplib::Result page = Get(path);
    ASSERT_TRUE(page);
    EXPECT_EQ(page->status, 503) << path;
  }
  run_->Publish(SampleReport());
  EXPECT_EQ(Get("/metrics")->status, 503);
}

TEST_F(WebServerTest, SaysHowTheMonitorIs) {
  Start();
  EXPECT_EQ(Get("/readyz")->body, "{\"health\":\"ok\",\"step\":16010}\n");
  EXPECT_EQ(Get("/readyz")->status, 200);
  EXPECT_EQ(Get("/healthz")->get_header_value("Content-Type"), "application/json");

  run_->Publish(SampleReport());
  EXPECT_THAT(
      Get("/healthz")->body,
      MatchesRegex("\\{\"health\":\"ok\",\"step\":16010,\"report_age_seconds\":[0-9.]+\\}\n"));
  AnalyzedReport later = SampleReport();
  ++later.report.sequence;
  later.report.snapshot_time_unix_seconds = 1e12;  // as if the clock had been set back
  run_->Publish(later);
  EXPECT_THAT(Get("/healthz")->body, HasSubstr("\"report_age_seconds\":0."));

  const auto status_with = [&](Health health) {
    SetMonitor([&](MonitorStatus& status) { status.health = health; });
    EXPECT_EQ(Get("/healthz")->status, 200);
    return Get("/readyz")->status;
  };
  EXPECT_EQ(status_with(Health::kStarting), 200);
  EXPECT_EQ(status_with(Health::kDegraded), 503);
  EXPECT_THAT(Get("/healthz")->body, StartsWith("{\"health\":\"degraded\""));
  EXPECT_EQ(status_with(Health::kStopped), 503);
  SetMonitor([&](MonitorStatus& status) { status.health_reason = "a \"closure\" \xff"; });
  EXPECT_EQ(status_with(Health::kInert), 503);
  EXPECT_THAT(Get("/healthz")->body,
              StartsWith("{\"health\":\"inert\",\"reason\":\"a \\\"closure\\\" \xEF\xBF\xBD\""));
  EXPECT_EQ(Get("/metrics")->status, 200);
}

TEST_F(WebServerTest, RefusesOtherPathsAndMethods) {
  Start();
  EXPECT_EQ(Get("/metrics/x")->status, 404);
  httplib::Client client("127.0.0.1", PortOf(address()));
  EXPECT_EQ(client.Post("/metrics", "x", "text/plain")->status, 405);
  EXPECT_EQ(client.Delete("/healthz")->status, 405);
}

TEST_F(WebServerTest, CapsLayers) {
  Start({.max_layers = 1});
  run_->Publish(SampleReport());
  const std::string body = Get("/metrics")->body;
  EXPECT_THAT(
      body,
      HasSubstr("{layer=\"blocks.1.weight\",method=\"gptq\",bits=\"3\",format=\"int\"} 0.03\n"));
  EXPECT_THAT(body,
              HasSubstr("{layer=\"_overflow\",method=\"gptq\",bits=\"3\",format=\"int\"} 0.02\n"));
  EXPECT_THAT(body, Not(HasSubstr("{layer=\"blocks.0.weight\",method")));
  // Each family ranks its own values.
  EXPECT_THAT(body, HasSubstr("trace{layer=\"blocks.0.weight\"} 205\n"));
  EXPECT_THAT(body, HasSubstr("trace{layer=\"_overflow\"} 168\n"));
}

TEST_F(WebServerTest, StopsInTimeWithAClientThatStays) {
  Start();
  httplib::Client stays("127.0.0.1", PortOf(address()));
  stays.set_keep_alive(true);
  ASSERT_TRUE(stays.Get("/metrics"));
  testing::RawClient idle(address());
  const auto start = std::chrono::steady_clock::now();
  server_->Stop();
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(10));
  server_->Stop();
  EXPECT_FALSE(testing::RawClient(address()).connected());
  run_->Publish(SampleReport());
}

absl::Status Refusal(const std::string& address, bool allow_remote = false) {
  internal::WebServer::Options options;
  options.http.listen = {.kind = "http",
                         .address = address,
                         .allow_remote = allow_remote,
                         .allow_remote_option = "ServeOptions::allow_remote"};
  static const internal::ServedRuns runs;
  return internal::WebServer::Start(std::move(options), &runs).status();
}

TEST_F(WebServerTest, NamesTheAddressThatIsWrong) {
  Create();
  EXPECT_THAT(std::string(Refusal("127.0.0.1:99999").message()),
              StartsWith("http address '127.0.0.1:99999': "));
  for (const char* remote : {"0.0.0.0:0", "[::]:0", "192.0.2.1:0"}) {
    EXPECT_EQ(Refusal(remote).code(), absl::StatusCode::kInvalidArgument) << remote;
    EXPECT_THAT(std::string(Refusal(remote).message()),
                AllOf(HasSubstr(remote), HasSubstr("ServeOptions::allow_remote, which is false")));
  }
  EXPECT_TRUE(Refusal("0.0.0.0:0", /*allow_remote=*/true).ok());
  EXPECT_EQ(Refusal(address()).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(Refusal(address()).message()),
              AllOf(HasSubstr(address()), HasSubstr("Address already in use")));
}

TEST_F(WebServerTest, ShowsEveryRunUnderItsName) {
  Create();
  EXPECT_EQ(Get("/metrics")->status, 503);
  const auto one = MakeRun("one"), other = MakeRun("other\n");
  one->Show();
  other->Show();
  one->Publish(SampleReport());
  other->Set([](RunStatus& status) { status.monitor.step = 7; });
  const std::string page = Get("/metrics")->body;
  EXPECT_THAT(page, HasSubstr("ptqwatch_step{run=\"one\"} 16010"));
  EXPECT_THAT(page, HasSubstr("ptqwatch_step{run=\"other\\n\"} 7"));
  EXPECT_THAT(page, HasSubstr("ptqwatch_training_stall_seconds_count{run=\"one\"}"));
  // All runs share one family.
  const size_t first = page.find("# TYPE ptqwatch_step gauge");
  EXPECT_EQ(page.find("# TYPE ptqwatch_step gauge", first + 1), std::string::npos);
  one->End();
  EXPECT_THAT(Get("/metrics")->body, Not(HasSubstr("run=\"one\"")));
}

TEST_F(WebServerTest, ShowsTheStatusOfARunWhoseJournalIsBeingRead) {
  Create();
  run_->ShowStatus();
  run_->Publish(SampleReport());
  EXPECT_THAT(Get("/metrics")->body, AllOf(HasSubstr("\nptqwatch_step 16010\n"),
                                           Not(HasSubstr("ptqwatch_snapshot_step "))));
  EXPECT_EQ(Get("/readyz")->status, 503);
  EXPECT_THAT(Get("/readyz")->body, HasSubstr("the journal is being read"));
  EXPECT_EQ(Get("/api/v1/reports")->status, 503);
  run_->Open();
  EXPECT_EQ(Get("/readyz")->status, 200);
  EXPECT_THAT(Get("/metrics")->body, HasSubstr("\nptqwatch_snapshot_step 16000\n"));
}

TEST_F(WebServerTest, IsReadyWhileNoRunIsInTrouble) {
  Create();
  EXPECT_EQ(Get("/healthz")->status, 200);
  EXPECT_EQ(Get("/readyz")->status, 503);
  const auto one = MakeRun("one"), other = MakeRun("other");
  one->Show();
  other->Show();
  EXPECT_EQ(Get("/readyz")->status, 200);
  other->Set([](RunStatus& status) { status.monitor.health = Health::kStopped; });
  EXPECT_EQ(Get("/readyz")->status, 200);  // a stopped run counts as ready
  one->Set([](RunStatus& status) {
    status.monitor.health = Health::kDegraded;
    status.monitor.health_reason = "no sign of life";
  });
  EXPECT_EQ(Get("/readyz")->status, 503);
  const auto health = nlohmann::json::parse(Get("/healthz")->body);
  EXPECT_EQ(Get("/healthz")->status, 200);
  ASSERT_EQ(health["runs"].size(), 2u);
  EXPECT_EQ(health["runs"][0]["run"], "one");
  EXPECT_EQ(health["runs"][0]["reason"], "no sign of life");
}

TEST_F(WebServerTest, IsScrapedWhileReportsCome) {
  Start();
  std::atomic<bool> done{false};
  std::atomic<int> good{0}, bad{0};
  std::vector<std::thread> scrapers;
  for (int i = 0; i < 3; ++i) {
    scrapers.emplace_back([&] {
      for (int k = 0; k < 20; ++k) {
        const std::string page = testing::Get(address(), "/metrics");
        ++(page.find("ptqwatch_training_stall_seconds_sum") != std::string::npos ? good : bad);
      }
    });
  }
  std::thread reporter([&] {
    AnalyzedReport report = SampleReport();
    while (!done) {
      ++report.report.step;
      ++report.report.sequence;
      run_->Publish(report);
      SetMonitor([&](MonitorStatus& status) { status.step = report.report.step; });
    }
  });
  for (std::thread& scraper : scrapers) scraper.join();
  done = true;
  reporter.join();
  EXPECT_EQ(good, 60);
  EXPECT_EQ(bad, 0);
}

}  // namespace web_server_test
}  // namespace ptqwatch
