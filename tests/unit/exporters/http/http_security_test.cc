// Tests of TLS and login, as seen by a client.

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "http/server/http_server.h"
#include "support/certificates.h"
#include "support/raw_client.h"
#include "support/sample_report.h"
#include "support/temp_dir.h"
#include "unit/exporters/http/http_fixture.h"

namespace ptqwatch {
namespace http_security_test {

using ::testing::AllOf;
using testing::CertificateFiles;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::PortOf;
using testing::RawClient;
using testing::SampleReport;
using ::testing::StartsWith;
using testing::TempDir;
using testing::WriteCertificate;

constexpr char kToken[] = "correct-horse-battery";
const std::string kClientHello("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);

class HttpSecurityTest : public testing::HttpTest {
 protected:
  void Serve(const ServerSecurity& security) {
    auto token = internal::CheckSecurity(security, "ServeOptions", /*remote=*/false);
    ASSERT_TRUE(token.ok()) << token.status();
    internal::WebServer::Options options;
    options.http.security = security;
    options.token = *std::move(token);
    Start(std::move(options));
    run_->Publish(SampleReport());
  }
  ServerSecurity Tls() const {
    return {.certificate_file = own_.certificate, .private_key_file = own_.key};
  }
  ServerSecurity Token() const {
    testing::WriteFile(folder_.File("token"), std::string(kToken) + "\n");
    return {.token_file = folder_.File("token")};
  }
  std::unique_ptr<httplib::SSLClient> Client(const CertificateFiles& own = {}) const {
    auto client = std::make_unique<httplib::SSLClient>("127.0.0.1", PortOf(address()),
                                                       own.certificate, own.key);
    client->set_ca_cert_path(own_.certificate.c_str());
    client->enable_server_certificate_verification(true);
    return client;
  }
  // Sends a request without TLS, with this authorization header unless empty.
  httplib::Result Get(const char* path, const std::string& authorization = "") const {
    httplib::Headers headers;
    if (!authorization.empty()) headers.emplace("Authorization", authorization);
    return HttpTest::Get(path, headers);
  }

  const TempDir folder_;
  const CertificateFiles own_ = WriteCertificate(folder_.path(), "server");
  const CertificateFiles other_ = WriteCertificate(folder_.path(), "other");
};

TEST_F(HttpSecurityTest, ServesByTls) {
  Serve(Tls());
  const httplib::Result page = Client()->Get("/metrics");
  ASSERT_TRUE(page) << httplib::to_string(page.error());
  EXPECT_EQ(page->status, 200);
  EXPECT_THAT(page->body, HasSubstr("ptqwatch_step"));
  auto stranger = Client();
  stranger->set_ca_cert_path(other_.certificate.c_str());
  EXPECT_EQ(stranger->Get("/metrics").error(), httplib::Error::SSLServerVerification);
}

TEST_F(HttpSecurityTest, StreamsEventsByTls) {
  Serve(Tls());
  std::string stream;
  Client()->Get("/api/v1/events?after=0", [&](const char* bytes, size_t size) {
    stream.append(bytes, size);
    return stream.find("event: report\n") == std::string::npos;
  });
  EXPECT_THAT(stream, AllOf(StartsWith("retry:"), HasSubstr("event: report\n")));
}

TEST_F(HttpSecurityTest, TellsAClientWithoutTlsToUseIt) {
  Serve(Tls());
  for (int i = 0; i < 8; ++i) {
    EXPECT_THAT(
        testing::Get(address(), "/metrics"),
        AllOf(StartsWith("HTTP/1.1 400 "), HasSubstr("https://"), Not(HasSubstr("ptqwatch_"))));
  }
  EXPECT_TRUE(Client()->Get("/metrics"));
}

TEST_F(HttpSecurityTest, TellsAClientThatTheServerHasNoTls) {
  Serve({});
  RawClient client(address());
  client.Send(kClientHello + std::string(500, 'x'));
  EXPECT_THAT(client.ReadAll(), AllOf(StartsWith("HTTP/1.1 400 "), HasSubstr("http://")));
  EXPECT_EQ(Client()->Get("/metrics").error(), httplib::Error::SSLConnection);
  EXPECT_EQ(Get("/metrics")->status, 200);
}

TEST_F(HttpSecurityTest, AsksForACertificateOfItsAuthorities) {
  ServerSecurity security = Tls();
  security.client_ca_file = other_.certificate;
  Serve(security);
  EXPECT_FALSE(Client()->Get("/metrics"));
  EXPECT_FALSE(Client()->Get("/healthz")) << "health is behind it, too";
  EXPECT_FALSE(Client(own_)->Get("/metrics")) << "of another authority";
  const httplib::Result page = Client(other_)->Get("/metrics");
  ASSERT_TRUE(page) << httplib::to_string(page.error());
  EXPECT_EQ(page->status, 200);
}

TEST_F(HttpSecurityTest, SurvivesHandshakesThatFail) {
  Serve(Tls());
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 40; ++i) {
    RawClient client(address());
    client.Send(kClientHello + std::string(static_cast<size_t>(30 * i), '\x7f'));
    if (i % 2 == 0) client.ResetWhenClosed();
  }
  EXPECT_TRUE(Client()->Get("/metrics"));
}

// Clients disconnect from a page and a stream while the server still has data to send. The write
// raises SIGPIPE, which by default ends the process.
TEST_F(HttpSecurityTest, SurvivesClientsThatGo) {
  struct sigaction pipe {};
  sigaction(SIGPIPE, nullptr, &pipe);
  ASSERT_EQ(pipe.sa_handler, SIG_DFL);
  Serve(Tls());
  for (int i = 0; i < 20; ++i) {
    for (const char* path : {"/metrics", "/page/chart.js", "/api/v1/events?after=0"}) {
      auto client = Client();
      client->Get(path, [](const char*, size_t) { return false; });
    }
    run_->Publish(Event{.kind = Event::Kind::kPhaseChange, .message = "m"});
  }
  EXPECT_TRUE(Client()->Get("/metrics"));
}

TEST_F(HttpSecurityTest, StopsAtOnceInTheMiddleOfAHandshake) {
  Serve(Tls());
  RawClient silent(address()), begun(address());
  begun.Send(kClientHello);
  const auto start = std::chrono::steady_clock::now();
  server_->Stop();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST_F(HttpSecurityTest, AsksForItsToken) {
  Serve(Token());
  for (const char* path :
       {"/metrics", "/", "/page/page.js", "/api/v1/reports", "/api/v1/status", "/api/v1/events"}) {
    for (const std::string& sent :
         {std::string(), std::string("Bearer correct-horse-batterx"), std::string("Bearer "),
          "Basic " + absl::Base64Escape("me:wrong"), std::string("Basic %%%"),
          "Basic " + absl::Base64Escape(kToken)}) {
      const httplib::Result refused = Get(path, sent);
      ASSERT_TRUE(refused) << path;
      EXPECT_EQ(refused->status, 401) << path << sent;
      EXPECT_EQ(refused->get_header_value("WWW-Authenticate"), "Basic realm=\"ptqwatch\"");
      EXPECT_THAT(refused->body, HasSubstr("token"));
    }
  }
  for (const char* path : {"/metrics", "/", "/page/page.js", "/api/v1/reports", "/api/v1/status"}) {
    for (const std::string& sent :
         {std::string("Bearer ") + kToken, std::string("bearer ") + kToken,
          "Basic " + absl::Base64Escape(std::string("me:") + kToken),
          "basic " + absl::Base64Escape(std::string(":") + kToken)}) {
      EXPECT_EQ(Get(path, sent)->status, 200) << path << sent;
    }
  }
}

TEST_F(HttpSecurityTest, TellsStrangersOnlyWhetherItIsWell) {
  Serve(Token());
  EXPECT_EQ(Get("/healthz")->body, "alive\n");
  EXPECT_EQ(Get("/readyz")->body, "ready\n");
  SetMonitor([](MonitorStatus& status) { status.health = Health::kDegraded; });
  EXPECT_EQ(Get("/healthz")->status, 200);
  EXPECT_EQ(Get("/readyz")->status, 503);
  EXPECT_EQ(Get("/readyz")->body, "not ready\n");
  EXPECT_THAT(Get("/readyz", std::string("Bearer ") + kToken)->body, HasSubstr("\"degraded\""));
}

/// A fixture that checks which certificate the server presents.
class ReplacedFiles : public HttpSecurityTest {
 protected:
  void ServeFiles(std::chrono::milliseconds interval) {
    internal::HttpServer::Options options;
    options.listen.kind = "http";
    options.listen.address = "127.0.0.1:0";
    options.security = Tls();
    options.certificate_interval = interval;
    auto started = internal::HttpServer::Start(
        options, [](const internal::HttpRequest&) { return internal::HttpResponse{}; });
    ASSERT_TRUE(started.ok()) << started.status();
    server_of_files_ = *std::move(started);
  }
  bool Shows(const std::string& certificate) const {
    httplib::SSLClient client("127.0.0.1", PortOf(server_of_files_->address()));
    client.set_ca_cert_path(certificate.c_str());
    client.enable_server_certificate_verification(true);
    return client.Get("/").error() == httplib::Error::Success;
  }
  std::string Copy(const std::string& file) const {
    const std::string copy = file + ".copy";
    std::filesystem::copy_file(file, copy);
    return copy;
  }

  const std::string first_ = Copy(own_.certificate);
  const std::string second_ = Copy(other_.certificate);
  std::unique_ptr<internal::HttpServer> server_of_files_;
};

TEST_F(ReplacedFiles, AreServedOnceTheyFit) {
  ServeFiles(std::chrono::milliseconds(0));
  EXPECT_TRUE(Shows(first_));
  EXPECT_FALSE(Shows(second_));
  std::filesystem::rename(other_.certificate, own_.certificate);
  EXPECT_TRUE(Shows(first_)) << "the key is still the former one";
  std::filesystem::rename(other_.key, own_.key);
  EXPECT_TRUE(Shows(second_));
  EXPECT_FALSE(Shows(first_));
  testing::WriteFile(own_.certificate, "nonsense");
  EXPECT_TRUE(Shows(second_));
  std::filesystem::remove(own_.key);
  EXPECT_TRUE(Shows(second_));
}

TEST_F(ReplacedFiles, AreNoticedOnceInAWhile) {
  ServeFiles(std::chrono::hours(1));
  std::filesystem::rename(other_.certificate, own_.certificate);
  std::filesystem::rename(other_.key, own_.key);
  EXPECT_TRUE(Shows(first_));
}

}  // namespace http_security_test
}  // namespace ptqwatch
