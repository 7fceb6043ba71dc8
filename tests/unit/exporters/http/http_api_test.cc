#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "http/gzip.h"
#include "nlohmann/json.hpp"
#include "support/eventually.h"
#include "support/raw_client.h"
#include "support/sample_report.h"
#include "unit/exporters/http/http_fixture.h"

namespace ptqwatch {
namespace http_api_test {

using nlohmann::json;
using testing::Eventually;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::PortOf;
using testing::RawClient;
using testing::SampleReport;
using ::testing::StartsWith;

std::shared_ptr<const AnalyzedReport> Numbered(int64_t sequence) {
  AnalyzedReport report = SampleReport();
  report.report.sequence = sequence;
  report.report.step = 100 * sequence;
  return std::make_shared<const AnalyzedReport>(std::move(report));
}

Event Named(const std::string& message) {
  return {.kind = Event::Kind::kPhaseChange, .step = 5, .message = message};
}

class HttpApiTest : public testing::HttpTest {
 protected:
  void Publish(int64_t first, int64_t last) {
    for (int64_t sequence = first; sequence <= last; ++sequence) run_->Publish(sequence);
  }
  json GetJson(const std::string& path, int status = 200) {
    const httplib::Result answer = Get(path);
    if (!answer) return nullptr;
    EXPECT_EQ(answer->status, status) << path << answer->body;
    EXPECT_EQ(answer->get_header_value("Content-Type"), "application/json");
    EXPECT_EQ(answer->get_header_value("Cache-Control"), "no-store");
    return json::parse(answer->body);
  }
  std::vector<int64_t> Sequences(const std::string& query) {
    std::vector<int64_t> sequences;
    const json page = GetJson("/api/v1/reports" + query);
    for (const json& report : page["reports"]) {
      sequences.push_back(report["sequence"]);
    }
    return sequences;
  }
  // Opens an event stream: sends the request and reads nothing.
  std::unique_ptr<RawClient> Stream(const std::string& query, const std::string& headers = "") {
    auto client = std::make_unique<RawClient>(address());
    client->Send("GET /api/v1/events" + query + " HTTP/1.1\r\nHost: localhost\r\n" + headers +
                 "\r\n");
    return client;
  }
};

TEST_F(HttpApiTest, ListsReportsAsTheJournalHasThem) {
  Start();
  Publish(1, 5);
  EXPECT_EQ(Sequences(""), (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(Sequences("?after=3"), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(Sequences("?after=1&limit=2"), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(Sequences("?after=99"), (std::vector<int64_t>{}));
  const json page = GetJson("/api/v1/reports?after=1&limit=2&layers=1");
  EXPECT_EQ(page["more"], true);
  EXPECT_EQ(page["oldest_sequence"], 1);
  EXPECT_EQ(page["newest_sequence"], 5);
  EXPECT_EQ(page["run_id"], "run-1");
  EXPECT_EQ(page["reports"][0], json::parse(ToJson(*Numbered(2))));
}

TEST_F(HttpApiTest, LeavesLayersOutUnlessAsked) {
  Start();
  Publish(1, 1);
  json expected = json::parse(ToJson(*Numbered(1)));
  for (json& entry : expected["quantization"]) entry["layers"] = json::array();
  for (json& average : expected["averaging"]) {
    for (json& entry : average["quantization"]) entry["layers"] = json::array();
  }
  expected["curvature"]["layers"] = json::array();
  expected["skipped_layers"] = json::array();
  expected["parameter_digests"] = json::array();
  EXPECT_EQ(GetJson("/api/v1/reports")["reports"][0], expected);
}

TEST_F(HttpApiTest, GivesSeriesWithValuesOfTheJournal) {
  Start();
  Publish(1, 1);
  const json whole = json::parse(ToJson(*Numbered(1)));
  const json series = GetJson("/api/v1/reports?series=1")["reports"][0];
  EXPECT_LT(series.dump().size(), whole.dump().size() / 2);
  // Every value of a series also appears in the journal.
  const json values = series.flatten();
  for (const auto& [pointer, value] : values.items()) {
    EXPECT_EQ(whole.at(json::json_pointer(pointer)), value) << pointer;
  }
  EXPECT_EQ(series["quantization"][0]["error_ratio"], whole["quantization"][0]["error_ratio"]);
  EXPECT_EQ(series["curvature"]["trace"], 368.5);
}

TEST_F(HttpApiTest, NamesTheParameterThatIsWrong) {
  Start();
  Publish(1, 2);
  for (const auto& [query, says] : std::vector<std::pair<std::string, std::string>>{
           {"reports?after=x", "after must be an integer from 0 up, is 'x'"},
           {"reports?after=-1", "after must be an integer from 0 up, is '-1'"},
           {"reports?after=", "after must be an integer from 0 up, is ''"},
           {"reports?after=99999999999999999999", "is '99999999999999999999'"},
           {"reports?limit=0", "limit must be an integer from 1 up, is '0'"},
           {"reports?layers=yes", "layers must be an integer from 0 to 1, is 'yes'"},
           {"reports?layers=1&series=1", "layers='1' and series='1'"},
           {"reports?aftr=1", "unknown parameter 'aftr'; known parameters: after, limit"},
           {"reports?after=1&after=2", "parameter 'after' is given more than once"},
           {"status?runs=a", "unknown parameter 'runs'"},
           {"events?after=1.5", "after must be an integer from 0 up, is '1.5'"},
           {"events?after_event=%00", "after_event must be an integer"}}) {
    EXPECT_THAT(GetJson("/api/v1/" + query, 400)["error"].get<std::string>(), HasSubstr(says));
  }
  EXPECT_THAT(GetJson("/api/v1/reports?run=other", 404)["error"].get<std::string>(),
              HasSubstr("run 'other' is not served here; the runs are 'run-1'"));
  const httplib::Result bad = Get("/api/v1/events", {{"Last-Event-ID", "12"}});
  EXPECT_EQ(bad->status, 400);
  EXPECT_THAT(bad->body, HasSubstr("Last-Event-ID must be SEQUENCE-NUMBER"));
}

TEST_F(HttpApiTest, SaysHowTheMonitorIs) {
  Start();
  Publish(1, 3);
  run_->Publish(Named("one"));
  const json status = GetJson("/api/v1/status");
  ASSERT_EQ(status["runs"].size(), 1u);
  EXPECT_EQ(status["runs"][0]["newest_sequence"], 3);
  EXPECT_EQ(status["runs"][0]["newest_event"], 1);
  EXPECT_EQ(status["runs"][0]["verdict"], "decay_degradation");
  EXPECT_EQ(status["runs"][0]["run"]["run_id"], "run-1");
  EXPECT_EQ(status["runs"][0]["status"]["step"], 16010);
  EXPECT_EQ(status["runs"][0]["status"]["health"], "ok");
}

TEST_F(HttpApiTest, HasNothingBeforeARun) {
  Create();
  EXPECT_EQ(Get("/api/v1/reports")->status, 503);
  EXPECT_EQ(Get("/api/v1/events")->status, 503);
  EXPECT_EQ(GetJson("/api/v1/status")["runs"], json::array());
}

TEST_F(HttpApiTest, AsksForTheRunIfThereAreSeveral) {
  Create();
  const auto a = MakeRun("a"), b = MakeRun("b");
  a->Publish(7);
  b->Publish(9);
  a->Show();
  b->Show();
  EXPECT_THAT(GetJson("/api/v1/reports", 400)["error"].get<std::string>(),
              HasSubstr("run must be one of 'a', 'b'"));
  EXPECT_EQ(GetJson("/api/v1/reports?run=b")["reports"][0]["sequence"], 9);
  EXPECT_EQ(GetJson("/api/v1/status")["runs"].size(), 2u);
  EXPECT_EQ(GetJson("/api/v1/status?run=a")["runs"].size(), 1u);
}

TEST_F(HttpApiTest, StreamsReportsEventsAndStatus) {
  Start();
  Publish(1, 3);
  run_->Publish(Named("past"));
  const auto client = Stream("?after=1&after_event=0");
  ASSERT_TRUE(client->Peek());
  run_->Publish(Named("now"));
  Publish(4, 4);
  std::string all;
  EXPECT_TRUE(Eventually([&] {
    if (client->Peek()) all += client->ReadSome();
    return all.find("id: 4-2\n") != std::string::npos;
  }));
  EXPECT_THAT(all, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(all, HasSubstr("\r\nContent-Type: text/event-stream\r\n"));
  size_t at = 0;
  for (const std::string& part :
       {std::string("\r\n\r\nretry: 2000\n\n"),
        std::string("event: status\ndata: {\"newest_sequence\":"),
        std::string("id: 2-0\nevent: report\ndata: {"), std::string("id: 3-0\nevent: report\n"),
        std::string("id: 3-1\nevent: event\ndata: {\"event\":{\"kind\":\"phase_change\"")}) {
    const size_t found = all.find(part, at);
    ASSERT_NE(found, std::string::npos) << part << "\nin\n" << all;
    at = found;
  }
  EXPECT_THAT(all, Not(HasSubstr("id: 1-0\n")));
}

TEST_F(HttpApiTest, GoesOnWhereAStreamEnded) {
  Start();
  Publish(1, 5);
  run_->Publish(Named("one"));
  run_->Publish(Named("two"));
  // Last-Event-ID takes precedence over the parameters of the URL.
  const auto client = Stream("?after=0&after_event=0", "Last-Event-ID: 4-1\r\n");
  std::string seen;
  EXPECT_TRUE(Eventually([&] {
    if (client->Peek()) seen += client->ReadSome();
    return seen.find("id: 5-2\n") != std::string::npos;
  }));
  EXPECT_THAT(seen, HasSubstr("id: 5-1\nevent: report\n"));
  EXPECT_THAT(seen, Not(HasSubstr("id: 4-")));
  EXPECT_THAT(seen, Not(HasSubstr("id: 3-")));
}

TEST_F(HttpApiTest, SaysHowManyReportsAStreamMissed) {
  Start({}, {.reports = 2});
  Publish(1, 9);
  const auto client = Stream("?after=3");
  std::string seen;
  EXPECT_TRUE(Eventually([&] {
    if (client->Peek()) seen += client->ReadSome();
    return seen.find("id: 9-0\n") != std::string::npos;
  }));
  EXPECT_THAT(seen, HasSubstr("event: missed\ndata: {\"missed\":4}\n\nid: 8-0\n"));
}

TEST_F(HttpApiTest, TakesNoMoreStreamsThanItMayAndStillAnswersScrapes) {
  Start({.max_streams = 30});
  Publish(1, 1);
  std::vector<std::unique_ptr<RawClient>> streams;
  for (int i = 0; i < 30; ++i) {
    streams.push_back(Stream("?after=0"));
    ASSERT_TRUE(streams.back()->Peek());
  }
  const httplib::Result refused = Get("/api/v1/events");
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 503);
  EXPECT_THAT(refused->body, HasSubstr("too many streams"));
  EXPECT_EQ(Get("/metrics")->status, 200);
  // A stream that ends makes room.
  streams.pop_back();
  EXPECT_TRUE(Eventually([&] {
    auto one_more = Stream("?after=0");
    return one_more->Peek() && one_more->ReadSome().rfind("HTTP/1.1 200", 0) == 0;
  }));
}

TEST_F(HttpApiTest, AStreamThatDoesNotReadKeepsNothingFromOthers) {
  Start();
  const auto deaf = Stream("?after=0&layers=1");
  ASSERT_TRUE(deaf->Peek());
  const auto reads = Stream("?after=0");
  Publish(1, 1000);
  std::string seen;
  EXPECT_TRUE(Eventually([&] {
    if (reads->Peek()) seen += reads->ReadSome();
    return seen.find("id: 1000-0\n") != std::string::npos;
  }));
  const auto start = std::chrono::steady_clock::now();
  server_->Stop();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST_F(HttpApiTest, ServesThePageFromTheBinary) {
  Start();
  const httplib::Result page = Get("/");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  EXPECT_EQ(page->get_header_value("Content-Type"), "text/html; charset=utf-8");
  const std::string policy = page->get_header_value("Content-Security-Policy");
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  EXPECT_EQ(page->get_header_value("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(page->get_header_value("Referrer-Policy"), "no-referrer");
  EXPECT_THAT(page->body, Not(HasSubstr("http://")));
  EXPECT_THAT(page->body, Not(HasSubstr("https://")));
  for (const char* file : {"page.css", "page.js", "chart.js", "icon.svg"}) {
    const std::string path = absl::StrCat("/page/", file);
    EXPECT_THAT(page->body, HasSubstr(path.substr(1)));
    const httplib::Result answer = Get(path);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 200) << path;
    const std::string etag = answer->get_header_value("ETag");
    const httplib::Result again = Get(path, {{"If-None-Match", etag}});
    EXPECT_EQ(again->status, 304) << path;
    EXPECT_EQ(again->body, "");
    // The client decompresses.
    EXPECT_EQ(Get(path, {{"Accept-Encoding", "gzip"}})->body, answer->body);
  }
}

TEST_F(HttpApiTest, RefusesOtherSites) {
  Start({.allowed_hosts = {"Trainer-7"}});
  Publish(1, 1);
  const auto status = [&](const std::string& path, const std::string& headers) {
    RawClient client(address());
    client.Send("GET " + path + " HTTP/1.1\r\nConnection: close\r\n" + headers + "\r\n");
    return client.ReadAll().substr(9, 3);
  };
  for (const std::string path : {"/", "/page/page.js", "/api/v1/status", "/api/v1/reports"}) {
    for (const std::string good :
         {"Host: localhost:9\r\n", "Host: LOCALHOST\r\n", "Host: 127.0.0.1:1\r\n",
          "Host: [::1]:9\r\n", "Host: trainer-7:80\r\n", "Host: 192.0.2.7\r\n",
          "Host: localhost:9\r\nOrigin: http://localhost:9\r\n"}) {
      EXPECT_EQ(status(path, good), "200") << path << good;
    }
    for (const std::string bad :
         {"", "Host: evil.example\r\n", "Host: localhost.evil.example:9464\r\n", "Host: [::1\r\n",
          "Host: 127.0.0.1.evil.example\r\n", "Host: localhost:9\r\nOrigin: null\r\n",
          "Host: localhost:9\r\nOrigin: http://evil.example\r\n",
          "Host: localhost:9\r\nOrigin: http://localhost:10\r\n"}) {
      EXPECT_EQ(status(path, bad), "403") << path << bad;
    }
  }
  // Scrapers may use any host name.
  EXPECT_EQ(status("/metrics", "Host: evil.example\r\n"), "200");
}

TEST(Gzip, IsForThoseWhoAsk) {
  using internal::AcceptsGzip;
  EXPECT_TRUE(AcceptsGzip("gzip"));
  EXPECT_TRUE(AcceptsGzip("br, GZIP;q=0.5"));
  EXPECT_TRUE(AcceptsGzip("*"));
  EXPECT_FALSE(AcceptsGzip(""));
  EXPECT_FALSE(AcceptsGzip("br, deflate"));
  EXPECT_FALSE(AcceptsGzip("gzip;q=0"));
  EXPECT_LT(internal::Gzip(std::string(100000, 'x')).size(), 1000u);
}

}  // namespace http_api_test
}  // namespace ptqwatch
