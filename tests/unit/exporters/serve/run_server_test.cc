// Tests of run directories served over both protocols, as seen by clients.

#include "ptqwatch/run_server.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "httplib.h"
#include "nlohmann/json.hpp"
#include "ptqwatch/client.h"
#include "support/certificates.h"
#include "support/eventually.h"
#include "support/raw_client.h"
#include "support/sample_report.h"
#include "support/temp_dir.h"
#include "unit/exporters/grpc/grpc_fixture.h"

namespace ptqwatch::testing {
namespace run_server_test {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class RunServerTest : public ::testing::Test {
 protected:
  void Append(const std::string& run, int64_t first, int64_t last,
              const std::string& run_id = "run-1") {
    std::filesystem::create_directories(Dir(run));
    std::ofstream journal(Dir(run) + "/journal.jsonl", std::ios::app);
    for (int64_t sequence = first; sequence <= last; ++sequence) {
      AnalyzedReport report = SampleReport();
      report.report.sequence = sequence;
      report.report.step = 100 * sequence;
      report.report.run_id = run_id;
      journal << ToJson(report) << "\n";
    }
  }
  std::string Dir(const std::string& run) const { return folder_.File(run); }
  static ServeOptions FreePorts() { return {.http = "127.0.0.1:0", .grpc = "127.0.0.1:0"}; }
  void Serve(const std::vector<std::string>& runs, ServeOptions options = FreePorts()) {
    std::vector<std::string> run_dirs;
    for (const std::string& run : runs) run_dirs.push_back(Dir(run));
    auto server = RunServer::Create(run_dirs, options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::string Page(const std::string& path) const {
    const httplib::Result page =
        httplib::Client("http://" + server_->http_address()).Get(path.c_str());
    return page ? page->body : "";
  }
  bool Shows(const std::string& text) const {
    return Eventually([&] { return Page("/metrics").find(text) != std::string::npos; });
  }
  std::unique_ptr<RunSource> Remote(const std::string& run = "") const {
    return OpenRemoteRun({.address = server_->grpc_address(), .run = run}).value();
  }

  const TempDir folder_;
  std::unique_ptr<RunServer> server_;
};

TEST_F(RunServerTest, ServesTheSameOverBothProtocols) {
  Append("one", 1, 3);
  Serve({"one"});
  ASSERT_TRUE(Shows("ptqwatch_snapshot_step{run=\"one\"} 300\n"));
  const json page = json::parse(Page("/api/v1/reports?layers=1"));
  const auto reports = Remote()->Reports();
  ASSERT_TRUE(reports.ok()) << reports.status();
  ASSERT_EQ(reports->size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(json::parse(ToJson((*reports)[i])), page["reports"][i]);
  EXPECT_EQ(Remote()->Status()->name, "one");
  std::string health;
  EXPECT_TRUE(GrpcClient(server_->grpc_address()).CheckHealth("", &health).ok());
  EXPECT_EQ(health, GrpcClient::kServing);
  Append("one", 4, 4);
  EXPECT_TRUE(Shows("ptqwatch_snapshot_step{run=\"one\"} 400\n"));
  EXPECT_EQ(Remote()->Reports({.after_sequence = 3})->size(), 1u);
}

TEST_F(RunServerTest, WaitsForARunThatHasNotBegun) {
  Serve({"one"});
  EXPECT_EQ(Page("/metrics"), "there is no run yet\n");
  EXPECT_TRUE(absl::IsUnavailable(Remote()->Status().status()));
  Append("one", 1, 1);
  EXPECT_TRUE(Shows("ptqwatch_snapshot_step{run=\"one\"} 100\n"));
}

TEST_F(RunServerTest, NamesRunsAfterTheirDirectories) {
  Append("a/run", 1, 1);
  Append("b/run", 1, 2, "run-2");
  Append("c", 1, 3, "run-3");
  Serve({"a/run", "b/run", "c"});
  ASSERT_TRUE(Shows("{run=\"c\"} 300\n"));
  ASSERT_TRUE(Shows("{run=\"" + Dir("a/run") + "\"} 100\n"));
  ASSERT_TRUE(Shows("{run=\"" + Dir("b/run") + "\"} 200\n"));
  EXPECT_EQ(Remote("c")->Status()->run.run_id, "run-3");
  EXPECT_EQ(Remote("run-2")->Status()->monitor.last_sequence, 2);
  EXPECT_THAT(std::string(Remote()->Status().status().message()), HasSubstr("'c'"));
}

TEST_F(RunServerTest, ServesOneRunWithoutAName) {
  Append("one", 1, 1);
  auto server = RunServer::CreateForOne(Dir("one"), FreePorts());
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  EXPECT_TRUE(Shows("\nptqwatch_snapshot_step 100\n"));
}

TEST_F(RunServerTest, ShowsTheRunThatTakesTheDirectory) {
  Append("one", 1, 7);
  Serve({"one"});
  ASSERT_TRUE(Shows("ptqwatch_snapshot_step{run=\"one\"} 700\n"));
  Append("one", 1, 1, "run-2");
  ASSERT_TRUE(Shows("ptqwatch_snapshot_step{run=\"one\"} 100\n"));
  EXPECT_EQ(Remote()->Reports()->size(), 1u);
}

TEST_F(RunServerTest, ShowsARunThatWasStartedAgainUnderItsOldName) {
  Append("one", 1, 7);
  Serve({"one"});
  ASSERT_TRUE(Shows("ptqwatch_snapshot_step{run=\"one\"} 700\n"));
  std::filesystem::remove(Dir("one") + "/journal.jsonl");
  Append("one", 1, 1);
  ASSERT_TRUE(Shows("ptqwatch_snapshot_step{run=\"one\"} 100\n"));
  EXPECT_EQ(Remote()->Reports()->size(), 1u);
}

TEST_F(RunServerTest, TakesCommandsOnlyIfAllowed) {
  Append("one", 1, 1);
  Serve({"one"});
  ASSERT_TRUE(Shows("run=\"one\""));
  EXPECT_TRUE(absl::IsPermissionDenied(Remote()->Do(Pause{}).status()));
  ServeOptions options = FreePorts();
  options.allow_control = true;
  Serve({"one"}, options);
  ASSERT_TRUE(Shows("run=\"one\""));
  EXPECT_TRUE(absl::IsUnavailable(Remote()->Do(Pause{}).status())) << "no trainer answers";
}

TEST_F(RunServerTest, ServesByTlsToThoseWithTheToken) {
  const CertificateFiles own = WriteCertificate(folder_.path(), "server");
  WriteFile(folder_.File("token"), "correct-horse-battery\n");
  Append("one", 1, 1);
  ServeOptions options = FreePorts();
  options.security = {.certificate_file = own.certificate,
                      .private_key_file = own.key,
                      .token_file = folder_.File("token")};
  Serve({"one"}, options);
  httplib::SSLClient https("127.0.0.1", PortOf(server_->http_address()));
  https.set_ca_cert_path(own.certificate.c_str());
  https.enable_server_certificate_verification(true);
  ASSERT_TRUE(Eventually([&] { return https.Get("/readyz")->status == 200; }));
  EXPECT_EQ(https.Get("/metrics")->status, 401);
  EXPECT_EQ(https.Get("/metrics", {{"Authorization", "Bearer correct-horse-battery"}})->status,
            200);
  ClientOptions client{.address = server_->grpc_address(), .ca_file = own.certificate};
  EXPECT_TRUE(absl::IsUnauthenticated((*OpenRemoteRun(client))->Status().status()));
  client.token_file = folder_.File("token");
  const auto status = (*OpenRemoteRun(client))->Status();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->run.run_id, "run-1");
}

TEST_F(RunServerTest, ServesByOneProtocolAlone) {
  Append("one", 1, 1);
  Serve({"one"}, {.http = "", .grpc = "127.0.0.1:0"});
  EXPECT_EQ(server_->http_address(), "");
  EXPECT_TRUE(Eventually([&] { return Remote()->Status().ok(); }));
  EXPECT_EQ(Remote()->Reports()->size(), 1u);
  Serve({"one"}, {.http = "127.0.0.1:0", .grpc = ""});
  EXPECT_EQ(server_->grpc_address(), "");
  EXPECT_TRUE(Shows("run=\"one\""));
}

TEST_F(RunServerTest, NamesTheOptionThatIsWrong) {
  const auto refusal = [&](const ServeOptions& options) {
    const absl::Status status = RunServer::Create({Dir("one")}, options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  ServeOptions options = FreePorts();
  options.max_layers = -1;
  EXPECT_THAT(refusal(options), HasSubstr("ServeOptions.max_layers = -1"));
  options = FreePorts();
  options.grpc = "127.0.0.1:x";
  EXPECT_THAT(refusal(options), HasSubstr("grpc address '127.0.0.1:x'"));
  options.grpc = "0.0.0.0:0";
  EXPECT_THAT(refusal(options), HasSubstr("ServeOptions::allow_remote, which is false"));
  options = FreePorts();
  options.security.certificate_file = "c.pem";
  EXPECT_THAT(refusal(options), AllOf(HasSubstr("ServeOptions.security.certificate_file 'c.pem'"),
                                      Not(HasSubstr("\n"))));
  EXPECT_TRUE(
      absl::IsInvalidArgument(RunServer::Create({Dir("one"), Dir("one")}, FreePorts()).status()));
  Serve({"one"});
  options = FreePorts();
  options.http = server_->http_address();
  EXPECT_TRUE(absl::IsUnavailable(RunServer::Create({Dir("one")}, options).status()));
}

TEST_F(RunServerTest, StopsInTimeWithClientsThatStay) {
  Append("one", 1, 5);
  Serve({"one"});
  ASSERT_TRUE(Shows("run=\"one\""));
  RawClient stream(server_->http_address()), silent(server_->grpc_address());
  stream.Send("GET /api/v1/events?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n");
  ASSERT_TRUE(stream.Peek());
  const auto start = std::chrono::steady_clock::now();
  server_->Stop();
  server_->Stop();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_FALSE(RawClient(server_->http_address()).connected());
  EXPECT_FALSE(RawClient(server_->grpc_address()).connected());
}

}  // namespace run_server_test
}  // namespace ptqwatch::testing
