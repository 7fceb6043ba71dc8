#include "http/server/http_server.h"

#include <signal.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "http/router.h"
#include "support/eventually.h"
#include "support/raw_client.h"

namespace ptqwatch::internal {
namespace http_server_test {

using ::testing::AllOf;
using ::testing::EndsWith;
using testing::Eventually;
using testing::Get;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::PortOf;
using testing::RawClient;
using ::testing::StartsWith;

constexpr std::chrono::milliseconds kShort{300};

HttpServer::Options At(const std::string& address) {
  return {.listen = {.kind = "http", .address = address, .allow_remote_option = "allow_remote"}};
}

std::unique_ptr<HttpServer> Serve(HttpRoutes routes,
                                  std::chrono::milliseconds patience = std::chrono::seconds(20)) {
  HttpServer::Options options = At("127.0.0.1:0");
  options.patience = patience;
  auto server = HttpServer::Start(options, MakeRouter(std::move(routes)));
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

HttpRoutes Page(size_t body_size) {
  return {{"/page", [body_size](const HttpRequest&) {
             return HttpResponse{.body = std::string(body_size, 'x')};
           }}};
}

std::unique_ptr<HttpServer> StartServer(size_t body_size = 5) { return Serve(Page(body_size)); }

// Reads until `end` arrives.
std::string ReadTo(RawClient& client, const std::string& end) {
  std::string all;
  while (!all.ends_with(end)) {
    const std::string some = client.ReadSome();
    if (some.empty()) break;
    all += some;
  }
  return all;
}

TEST(HttpServer, AnswersGetAndHead) {
  auto server = StartServer();
  const std::string page = Get(server->address(), "/page");
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(page, HasSubstr("Content-Type: text/plain; charset=utf-8\r\n"));
  EXPECT_THAT(page, EndsWith("\r\n\r\nxxxxx"));
  EXPECT_THAT(Get(server->address(), "/page?a=b"), StartsWith("HTTP/1.1 200 "));

  RawClient head(server->address());
  head.Send("HEAD /page HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(head.ReadAll(), AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("Content-Length: 5\r\n"),
                                    EndsWith("\r\n\r\n")));
}

TEST(HttpServer, KeepsAConnectionUntilTheClientEndsIt) {
  auto server = StartServer();
  RawClient client(server->address());
  for (int i = 0; i < 3; ++i) {
    client.Send("GET /page HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(ReadTo(client, "xxxxx"), StartsWith("HTTP/1.1 200 "));
  }
  client.Send("POST /page HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_THAT(ReadTo(client, "allowed\n"),
              AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("Allow: GET, HEAD\r\n")));
  client.Send("GET /page HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), AllOf(StartsWith("HTTP/1.1 200 "), EndsWith("xxxxx")));

  RawClient old(server->address());
  old.Send("GET /page HTTP/1.0\r\n\r\n");
  EXPECT_THAT(old.ReadAll(), EndsWith("xxxxx"));
}

TEST(HttpServer, RefusesOtherPaths) {
  auto server = StartServer();
  EXPECT_THAT(Get(server->address(), "/"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Get(server->address(), "/page/../../etc/passwd"), StartsWith("HTTP/1.1 404 "));
}

TEST(HttpServer, RefusesWhatIsNotHttp) {
  auto server = StartServer();
  for (const std::string& request :
       {std::string("\r\n\r\n"), std::string("nonsense\r\n\r\n"), std::string(8, '\0') + "\r\n\r\n",
        std::string("GET /page HTTP/1.1\r\nHost x\r\n\r\n"),
        std::string("GET /%00%ff%zz HTTP/1.1\r\n\r\n")}) {
    RawClient client(server->address());
    client.Send(request);
    client.EndSending();
    EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 4")) << request.substr(0, 40);
  }
  EXPECT_THAT(Get(server->address(), "/page"), StartsWith("HTTP/1.1 200 "));
}

// A browser sends all cookies of a host, including those of other programs on it.
TEST(HttpServer, ReadsLongHeadersWithinItsLimits) {
  auto server = StartServer();
  RawClient client(server->address());
  client.Send("GET /page HTTP/1.1\r\nConnection: close\r\nCookie: " + std::string(50000, 'a') +
              "\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), AllOf(StartsWith("HTTP/1.1 200 "), EndsWith("\r\n\r\nxxxxx")));
  RawClient flood(server->address());
  flood.Send("GET /page HTTP/1.1\r\n");
  while (flood.TrySend("X: " + std::string(10000, 'a') + "\r\n")) {
  }
  EXPECT_THAT(flood.ReadAll(), Not(HasSubstr("xxxxx")));
  RawClient upload(server->address());
  upload.Send("POST /page HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n");
  EXPECT_THAT(upload.ReadAll(), StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(Get(server->address(), "/page"), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServer, SaysWhyAPortCannotBeBound) {
  auto first = StartServer();
  const auto second = HttpServer::Start(At(first->address()), MakeRouter({}));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(std::string(second.status().message()),
            "http address '" + first->address() + "': cannot bind: Address already in use");
  const std::string address = first->address();
  EXPECT_THAT(Get(address, "/page"), StartsWith("HTTP/1.1 200 "));
  first->Stop();
  EXPECT_TRUE(HttpServer::Start(At(address), MakeRouter({})).ok())
      << "freed at once, whatever connections it had";
}

TEST(HttpServer, SaysWhyAHostCannotBeUsed) {
  // TEST-NET-1: never assigned to a host.
  HttpServer::Options remote = At("192.0.2.1:0");
  remote.listen.allow_remote = true;
  const auto foreign = HttpServer::Start(remote, MakeRouter({}));
  EXPECT_EQ(foreign.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(foreign.status().message()),
              HasSubstr("Cannot assign requested address"));
  const auto unknown = HttpServer::Start(At("300.1.1.1.invalid:0"), MakeRouter({}));
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("cannot resolve"));
}

TEST(HttpServer, ReportsThePortItTook) {
  auto server = StartServer();
  EXPECT_THAT(server->address(), StartsWith("127.0.0.1:"));
  EXPECT_GT(PortOf(server->address()), 0);
}

TEST(HttpServer, ServesIpv6) {
  const auto server = HttpServer::Start(At("[::1]:0"), MakeRouter({}));
  if (!server.ok()) GTEST_SKIP() << "no IPv6 here: " << server.status();
  EXPECT_THAT((*server)->address(), StartsWith("[::1]:"));
  EXPECT_GT(PortOf((*server)->address()), 0);
}

TEST(HttpServer, StopsAtOnceWithClientsThatDoNothing) {
  auto server = StartServer();
  std::vector<std::unique_ptr<RawClient>> idle;
  for (int i = 0; i < 8; ++i) {
    idle.push_back(std::make_unique<RawClient>(server->address()));
    if (i % 2 == 1) idle.back()->Send("GET /page HTT");
  }
  const auto start = std::chrono::steady_clock::now();
  server->Stop();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  server->Stop();
  EXPECT_FALSE(RawClient(server->address()).connected());
}

TEST(HttpServer, StopsAtOnceWithAClientThatDoesNotRead) {
  auto server = StartServer(size_t{64} << 20);
  RawClient client(server->address());
  client.Send("GET /page HTTP/1.1\r\n\r\n");
  // The response has started but cannot complete, because the buffers of the kernel are far
  // smaller.
  ASSERT_TRUE(client.Peek());
  const auto start = std::chrono::steady_clock::now();
  server->Stop();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(HttpServer, DropsAClientThatDoesNotRead) {
  constexpr size_t kBytes = size_t{32} << 20;
  auto server = Serve(Page(kBytes), kShort);
  std::vector<std::unique_ptr<RawClient>> deaf;
  // On a busy machine the server may drop clients before it sees what they sent.
  const auto begins = [&] {
    auto client = std::make_unique<RawClient>(server->address());
    if (!client->TrySend("GET /page HTTP/1.1\r\n\r\n") || !client->Peek()) return false;
    deaf.push_back(std::move(client));
    return deaf.size() == 2;
  };
  ASSERT_TRUE(Eventually(begins));
  EXPECT_TRUE(
      Eventually([&] { return Get(server->address(), "/other").rfind("HTTP/1.1 404 ", 0) == 0; }));
  // The client notices with its next byte.
  for (const auto& client : deaf) {
    EXPECT_TRUE(Eventually([&] { return !client->TrySend("x"); }));
    EXPECT_LT(client->ReadAll().size(), kBytes);
  }
}

TEST(HttpServer, DropsAClientThatSaysNothing) {
  auto server = Serve(Page(5), kShort);
  RawClient silent(server->address()), begun(server->address());
  begun.Send("GET /page HTT");
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_EQ(begun.ReadAll(), "");
  // On a busy machine it may be dropped before it is answered.
  EXPECT_TRUE(Eventually([&] {
    RawClient answered(server->address());
    answered.TrySend("GET /page HTTP/1.1\r\n\r\n");
    const std::string answer = answered.ReadAll();
    return answer.size() > 5 && answer.substr(answer.size() - 5) == "xxxxx";
  }));
}

TEST(HttpServer, MakesRoomForNewClients) {
  auto server = StartServer();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 80; ++i) clients.push_back(std::make_unique<RawClient>(server->address()));
  // The first clients have been silent the longest.
  EXPECT_EQ(clients.front()->ReadAll(), "");
  clients.back()->Send("GET /page HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(clients.back()->ReadAll(), StartsWith("HTTP/1.1 200 "));
}

// Browsers open connections in advance and may never use them.
TEST(HttpServer, AnswersBesideSilentConnections) {
  auto server = StartServer();
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 12; ++i) silent.push_back(std::make_unique<RawClient>(server->address()));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(Get(server->address(), "/page"), StartsWith("HTTP/1.1 200 "));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  silent.front()->Send("GET /page HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(silent.front()->ReadAll(), StartsWith("HTTP/1.1 200 "));
}

// A write to a connection that the client has reset raises SIGPIPE, which by default ends the
// process.
TEST(HttpServer, OutlivesClientsThatDisconnectInTheMiddle) {
  struct sigaction pipe {};
  sigaction(SIGPIPE, nullptr, &pipe);
  ASSERT_EQ(pipe.sa_handler, SIG_DFL);
  auto server = StartServer(size_t{4} << 20);
  for (int i = 0; i < 50; ++i) {
    RawClient client(server->address());
    client.Send("GET /page HTTP/1.1\r\n\r\n");
    if (i % 2 == 0) {
      ASSERT_TRUE(client.Peek());
    }
    client.ResetWhenClosed();
  }
  EXPECT_GT(Get(server->address(), "/page").size(), size_t{4} << 20);
}

TEST(HttpServer, AnswersManyClientsAtOnce) {
  auto server = StartServer(100000);
  std::atomic<int> answered{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] {
      for (int k = 0; k < 25; ++k) {
        if (Get(server->address(), "/page").size() > 100000) ++answered;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered, 100);
}

TEST(HttpServer, TurnsAnExceptionOfAHandlerIntoAnError) {
  auto server =
      Serve({{"/bad", [](const HttpRequest&) -> HttpResponse { throw std::runtime_error("no"); }}});
  EXPECT_THAT(Get(server->address(), "/bad"), StartsWith("HTTP/1.1 500 "));
  EXPECT_THAT(Get(server->address(), "/bad"), StartsWith("HTTP/1.1 500 "));
}

/// A server with a route /stream whose parts the test chooses.
struct Streamed {
  explicit Streamed(std::function<std::optional<std::string>()> parts)
      : server(Serve({{"/stream",
                       [this, parts = std::move(parts)](const HttpRequest&) {
                         return HttpResponse{.body = "begins ",
                                             .stream = [parts, held = open] { return parts(); }};
                       }},
                      {"/page", [](const HttpRequest&) { return HttpResponse{.body = "page"}; }}},
                     kShort)) {}
  bool has_streams() const { return open.use_count() > 1; }

  std::shared_ptr<int> open = std::make_shared<int>();
  const std::unique_ptr<HttpServer> server;
};

TEST(HttpServer, StreamsWhatIsNewUntilTheEnd) {
  std::atomic<int> published{0};
  int sent = 0;  // used on the server's thread
  Streamed streamed([&]() -> std::optional<std::string> {
    if (sent == 3) return std::nullopt;
    return sent < published ? std::to_string(++sent) : "";
  });
  RawClient client(streamed.server->address());
  client.Send("GET /stream HTTP/1.1\r\n\r\n");
  EXPECT_THAT(ReadTo(client, "begins "), Not(HasSubstr("Content-Length")));
  for (const char* part : {"1", "2", "3"}) {
    ++published;
    streamed.server->Wake();
    EXPECT_EQ(ReadTo(client, part), part);
  }
  EXPECT_EQ(client.ReadAll(), "");
}

TEST(HttpServer, ForgetsAStreamWhoseClientHasGone) {
  Streamed streamed([] { return std::optional<std::string>(""); });
  {
    RawClient client(streamed.server->address());
    client.Send("GET /stream HTTP/1.1\r\n\r\n");
    ReadTo(client, "begins ");
    EXPECT_TRUE(streamed.has_streams());
  }
  EXPECT_TRUE(Eventually([&] { return !streamed.has_streams(); }));
}

TEST(HttpServer, AsksNoMoreOfAStreamThanItsClientReads) {
  std::atomic<size_t> given{0};
  Streamed streamed([&] {
    given += 100'000;
    return std::optional<std::string>(std::string(100'000, 'x'));
  });
  RawClient deaf(streamed.server->address());
  deaf.Send("GET /stream HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(deaf.Peek());
  EXPECT_THAT(Get(streamed.server->address(), "/page"), EndsWith("page"));
  EXPECT_TRUE(Eventually([&] { return !streamed.has_streams(); })) << "it is dropped";
  EXPECT_LT(given, size_t{20} << 20) << "no more than the kernel's buffers take";
}

}  // namespace http_server_test
}  // namespace ptqwatch::internal
