#include "ptqwatch/prometheus_hub.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "httplib.h"
#include "nlohmann/json.hpp"
#include "support/fake_status_source.h"
#include "support/sample_report.h"

namespace ptqwatch::testing {
namespace prometheus_hub_test {

using ::testing::HasSubstr;
using ::testing::Not;

class PrometheusHubTest : public ::testing::Test {
 protected:
  PrometheusHubTest() : hub_(PrometheusHub::Create({.address = "127.0.0.1:0"}).value()) {
    for (size_t i = 0; i < 2; ++i) {
      runs_[i] = hub_->AddRun(i == 0 ? "one" : "other\n").value();
    }
  }
  void Start(size_t run) { ASSERT_TRUE(runs_[run]->Start(&sources_[run], nullptr).ok()); }
  httplib::Result Get(const char* path) {
    return httplib::Client("http://" + hub_->address()).Get(path);
  }

  std::unique_ptr<PrometheusHub> hub_;
  FakeStatusSource sources_[2];
  std::unique_ptr<Exporter> runs_[2];
};

TEST_F(PrometheusHubTest, ShowsEveryRunUnderItsName) {
  EXPECT_EQ(Get("/metrics")->status, 503);
  Start(0);
  Start(1);
  sources_[0].SetLatest(std::make_shared<const AnalyzedReport>(SampleReport()));
  sources_[1].Set([](MonitorStatus& status) { status.step = 7; });
  const std::string page = Get("/metrics")->body;
  EXPECT_THAT(page, HasSubstr("ptqwatch_step{run=\"one\"} 16010"));
  EXPECT_THAT(page, HasSubstr("ptqwatch_step{run=\"other\\n\"} 7"));
  EXPECT_THAT(page, HasSubstr("ptqwatch_training_stall_seconds_count{run=\"one\"}"));
  // One family, however many runs.
  const size_t first = page.find("# TYPE ptqwatch_step gauge");
  EXPECT_EQ(page.find("# TYPE ptqwatch_step gauge", first + 1), std::string::npos);
  runs_[0]->Stop(std::chrono::seconds(1));
  EXPECT_THAT(Get("/metrics")->body, Not(HasSubstr("run=\"one\"")));
  EXPECT_FALSE(hub_->AddRun("other\n").ok());
  EXPECT_TRUE(hub_->AddRun("one").ok());
}

TEST_F(PrometheusHubTest, IsReadyWhileNoRunIsInTrouble) {
  EXPECT_EQ(Get("/healthz")->status, 200);
  EXPECT_EQ(Get("/readyz")->status, 503);
  Start(0);
  Start(1);
  EXPECT_EQ(Get("/readyz")->status, 200);
  sources_[1].Set([](MonitorStatus& status) { status.health = Health::kStopped; });
  EXPECT_EQ(Get("/readyz")->status, 200);  // it is over
  sources_[0].Set([](MonitorStatus& status) {
    status.health = Health::kDegraded;
    status.health_reason = "no sign of life";
  });
  EXPECT_EQ(Get("/readyz")->status, 503);
  const auto health = nlohmann::json::parse(Get("/healthz")->body);
  EXPECT_EQ(Get("/healthz")->status, 200);
  ASSERT_EQ(health["runs"].size(), 2u);
  EXPECT_EQ(health["runs"][0]["run"], "one");
  EXPECT_EQ(health["runs"][0]["reason"], "no sign of life");
}

}  // namespace prometheus_hub_test
}  // namespace ptqwatch::testing
