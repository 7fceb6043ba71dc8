#include "http_server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/raw_client.h"

namespace ptqwatch::internal {
namespace http_server_test {

using ::testing::EndsWith;
using testing::Get;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::PortOf;
using testing::RawClient;
using ::testing::StartsWith;

ListenOptions At(const std::string& address) {
  return {.kind = "http", .address = address, .allow_remote_option = "allow_remote"};
}

std::unique_ptr<HttpServer> StartServer(size_t body_size = 5) {
  auto server = HttpServer::Start(At("127.0.0.1:0"),
                                  {{"/page", [body_size](const HttpRequest&) {
                                      return HttpResponse{.body = std::string(body_size, 'x')};
                                    }}});
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

std::array<struct sigaction, NSIG> Dispositions() {
  std::array<struct sigaction, NSIG> all{};
  for (int signal = 1; signal < NSIG; ++signal) {
    sigaction(signal, nullptr, &all[static_cast<size_t>(signal)]);
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
  head.Send("HEAD /page HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string headers = head.ReadAll();
  EXPECT_THAT(headers, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(headers, EndsWith("\r\n\r\n"));
}

TEST(HttpServer, RefusesOtherPathsAndMethods) {
  auto server = StartServer();
  EXPECT_THAT(Get(server->address(), "/"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Get(server->address(), "/page/../../etc/passwd"), StartsWith("HTTP/1.1 404 "));
  RawClient post(server->address());
  post.Send("POST /page HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi");
  const std::string refused = post.ReadAll();
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(refused, HasSubstr("Allow: GET, HEAD\r\n"));
}

TEST(HttpServer, HearsOutAClientWhoseBodyNobodyWants) {
  auto server = StartServer();
  RawClient client(server->address());
  client.Send("POST /page HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\n\r\n");
  EXPECT_THAT(client.ReadSome(), StartsWith("HTTP/1.1 405 "));
  EXPECT_TRUE(client.TrySend(std::string(1000, 'x')));
  EXPECT_TRUE(client.TrySend(std::string(1000, 'x')));  // the connection was not reset
}

TEST(HttpServer, SurvivesWhatIsNotHttp) {
  auto server = StartServer();
  for (const std::string& request :
       {std::string("\r\n\r\n"), std::string("nonsense\r\n\r\n"), std::string(8, '\0') + "\r\n\r\n",
        "GET " + std::string(10000, 'a') + " HTTP/1.1\r\n\r\n",
        "GET /page HTTP/1.1\r\nHost: " + std::string(20000, 'a') + "\r\n\r\n",
        std::string("GET /%00%ff%zz HTTP/1.1\r\n\r\n")}) {
    RawClient client(server->address());
    client.Send(request);
    client.EndSending();
    EXPECT_THAT(client.ReadAll(), Not(StartsWith("HTTP/1.1 200 "))) << request.substr(0, 40);
  }
  EXPECT_THAT(Get(server->address(), "/page"), StartsWith("HTTP/1.1 200 "));
}

// A page for each of them would be gigabytes in the trainer's memory.
TEST(HttpServer, IgnoresRanges) {
  auto server = StartServer();
  std::string request = "GET /page HTTP/1.1\r\nRange: bytes=0-0";
  while (request.size() < 50000) request += ",0-0";
  for (const std::string& ranges :
       {request, std::string("GET /page HTTP/1.1\r\nRange: bytes=1-2")}) {
    RawClient client(server->address());
    client.Send(ranges + "\r\n\r\n");
    const std::string page = client.ReadAll();
    EXPECT_THAT(page, StartsWith("HTTP/1.1 200 "));
    EXPECT_THAT(page, EndsWith("\r\n\r\nxxxxx"));
    EXPECT_LT(page.size(), 500u);
  }
}

// httplib's regular expressions recurse once a character: 8,100 of them overflow a stack of 2 MiB.
TEST(HttpServer, CutsOffALongLine) {
  auto server = StartServer();
  for (const std::string& line : {"Accept-Encoding: " + std::string(8100, ','),
                                  "Host: " + std::string(1100, 'a'), std::string(1100, 'a')}) {
    RawClient client(server->address());
    client.Send("GET /page HTTP/1.1\r\n" + line + "\r\n\r\n");
    EXPECT_THAT(client.ReadAll(), Not(HasSubstr("xxxxx"))) << line.substr(0, 20);
  }
  EXPECT_THAT(Get(server->address(), "/page"), StartsWith("HTTP/1.1 200 "));
}

// A browser sends all cookies of a host, whatever program on it they are of.
TEST(HttpServer, AnswersALongLineThatNobodyLooksAt) {
  auto server = StartServer();
  for (const std::string& line :
       {"Cookie: " + std::string(50000, 'a'), "Range: bytes=" + std::string(8100, '0'),
        "Range: bytes=0-0," + std::string(8100, ' '), "X: " + std::string(8100, 'a')}) {
    RawClient client(server->address());
    client.Send("GET /page HTTP/1.1\r\n" + line + "\r\n\r\n");
    const std::string page = client.ReadAll();
    EXPECT_THAT(page, StartsWith("HTTP/1.1 200 ")) << line.substr(0, 20);
    EXPECT_THAT(page, EndsWith("\r\n\r\nxxxxx")) << line.substr(0, 20);
  }
}

TEST(HttpServer, CutsOffARequestWithoutEnd) {
  auto server = StartServer();
  RawClient client(server->address());
  client.Send("GET /page HTTP/1.1\r\n");
  std::string headers;
  while (headers.size() < (size_t{64} << 10)) headers += "X: " + std::string(1000, 'a') + "\r\n";
  client.Send(headers);
  EXPECT_THAT(client.ReadAll(), Not(HasSubstr("xxxxx")));
  EXPECT_THAT(Get(server->address(), "/page"), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServer, SaysWhyAPortCannotBeBound) {
  auto first = StartServer();
  const auto second = HttpServer::Start(At(first->address()), {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(std::string(second.status().message()),
            "http address '" + first->address() + "': cannot bind: Address already in use");
  const std::string address = first->address();
  EXPECT_THAT(Get(address, "/page"), StartsWith("HTTP/1.1 200 "));
  first->Stop();
  EXPECT_TRUE(HttpServer::Start(At(address), {}).ok())
      << "freed at once, whatever connections it had";
}

TEST(HttpServer, SaysWhyAHostCannotBeUsed) {
  // TEST-NET-1: nobody has it.
  ListenOptions remote = At("192.0.2.1:0");
  remote.allow_remote = true;
  const auto foreign = HttpServer::Start(remote, {});
  EXPECT_EQ(foreign.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(foreign.status().message()),
              HasSubstr("Cannot assign requested address"));
  const auto unknown = HttpServer::Start(At("300.1.1.1.invalid:0"), {});
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("cannot resolve"));
}

TEST(HttpServer, ReportsThePortItTook) {
  auto server = StartServer();
  EXPECT_THAT(server->address(), StartsWith("127.0.0.1:"));
  EXPECT_GT(PortOf(server->address()), 0);
}

TEST(HttpServer, ServesIpv6) {
  const auto server = HttpServer::Start(At("[::1]:0"), {});
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
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  server->Stop();
  EXPECT_FALSE(RawClient(server->address()).connected());
}

TEST(HttpServer, StopsAtOnceWithAClientThatDoesNotRead) {
  auto server = StartServer(size_t{64} << 20);
  RawClient client(server->address());
  client.Send("GET /page HTTP/1.1\r\n\r\n");
  // The response has begun and cannot end: the kernel's buffers are far smaller.
  ASSERT_TRUE(client.Peek());
  const auto start = std::chrono::steady_clock::now();
  server->Stop();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

TEST(HttpServer, ClosesConnectionsBeyondItsLimit) {
  auto server = StartServer();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 80; ++i) clients.push_back(std::make_unique<RawClient>(server->address()));
  // Nobody has said anything, so nobody was answered, and the first have waited for longest.
  EXPECT_EQ(clients.front()->ReadAll(), "");
  clients.back()->Send("GET /page HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(clients.back()->ReadAll(), StartsWith("HTTP/1.1 200 "));
}

// Browsers open connections ahead of requests that may never come.
TEST(HttpServer, AnswersBesideSilentConnections) {
  auto server = StartServer();
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 12; ++i) silent.push_back(std::make_unique<RawClient>(server->address()));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(Get(server->address(), "/page"), StartsWith("HTTP/1.1 200 "));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
  silent.front()->Send("GET /page HTTP/1.1\r\nHost: x\r\n\r\n");
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

TEST(HttpServer, LeavesSignalDispositionsAndMaskAlone) {
  struct sigaction own {};
  own.sa_handler = [](int) {};
  sigaddset(&own.sa_mask, SIGUSR2);
  own.sa_flags = SA_RESTART;
  struct sigaction before_test {};
  ASSERT_EQ(sigaction(SIGPIPE, &own, &before_test), 0);

  const auto before = Dispositions();
  sigset_t mask_before, mask_after;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask_before);
  auto server = StartServer();
  const auto expect_same = [&](const char* when) {
    const auto now = Dispositions();
    for (size_t signal = 1; signal < NSIG; ++signal) {
      EXPECT_EQ(before[signal].sa_handler, now[signal].sa_handler) << signal << when;
      EXPECT_EQ(before[signal].sa_flags, now[signal].sa_flags) << signal << when;
      for (int masked = 1; masked < NSIG; ++masked) {
        EXPECT_EQ(sigismember(&before[signal].sa_mask, masked),
                  sigismember(&now[signal].sa_mask, masked))
            << signal << when;
      }
    }
  };
  expect_same(" after the start");
  Get(server->address(), "/page");
  expect_same(" after a request");
  server->Stop();
  server.reset();
  expect_same(" after the end");
  pthread_sigmask(SIG_SETMASK, nullptr, &mask_after);
  for (int signal = 1; signal < NSIG; ++signal) {
    EXPECT_EQ(sigismember(&mask_before, signal), sigismember(&mask_after, signal)) << signal;
  }
  sigaction(SIGPIPE, &before_test, nullptr);
}

TEST(HttpServer, BlocksAllSignalsOnItsThreads) {
  auto server = StartServer();
  Get(server->address(), "/page");  // by now the acceptor has its name; the workers may not
  int threads = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    std::string line, name;
    uint64_t blocked = 0;
    while (std::getline(status, line)) {
      if (line.starts_with("Name:")) name = line.substr(6);
      if (line.starts_with("SigBlk:")) blocked = std::stoull(line.substr(8), nullptr, 16);
    }
    if (name != "ptqw-http") continue;
    ++threads;
    for (int signal : {SIGHUP, SIGINT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2, SIGCHLD, SIGPROF}) {
      EXPECT_TRUE(blocked >> (signal - 1) & 1) << signal;
    }
  }
  EXPECT_GE(threads, 2);
}

TEST(HttpServer, ServesWithMoreThanAThousandOpenFiles) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit raised = limit;
  raised.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &raised), 0);
  std::vector<int> files;
  while (files.empty() || files.back() < 1100) {
    files.push_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
    ASSERT_GE(files.back(), 0);
  }
  auto server = StartServer();
  EXPECT_THAT(Get(server->address(), "/page"), StartsWith("HTTP/1.1 200 "));
  for (int file : files) close(file);
  setrlimit(RLIMIT_NOFILE, &limit);
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
  auto server = HttpServer::Start(
      At("127.0.0.1:0"),
      {{"/bad", [](const HttpRequest&) -> HttpResponse { throw std::runtime_error("no"); }}});
  ASSERT_TRUE(server.ok());
  EXPECT_THAT(Get((*server)->address(), "/bad"), StartsWith("HTTP/1.1 500 "));
  EXPECT_THAT(Get((*server)->address(), "/bad"), StartsWith("HTTP/1.1 500 "));
}

}  // namespace http_server_test
}  // namespace ptqwatch::internal
