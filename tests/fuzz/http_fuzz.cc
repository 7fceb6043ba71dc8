// Whatever a client sends, a connection ends with at most one response that is none longer than the
// page asked for, and the page is given to nobody who did not ask for it.

#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/fuzz_target.h"
#include "http_responder.h"

namespace ptqwatch::fuzz {
namespace {

constexpr size_t kMaxBytes = size_t{80} << 10;  // above what a request may have
constexpr size_t kPageBytes = 3000;
constexpr size_t kMaxHeaderBytes = 1000;

internal::HttpResponder& Responder() {
  static auto* const responder = new internal::HttpResponder(
      {{"/metrics",
        [](const internal::HttpRequest&) {
          return internal::HttpResponse{.body = std::string(kPageBytes, 'x')};
        }},
       {"/healthz",
        [](const internal::HttpRequest&) {
          return internal::HttpResponse{.content_type = "application/json", .body = "{}\n"};
        }},
       {"/throws", [](const internal::HttpRequest&) -> internal::HttpResponse {
          throw std::runtime_error("no");
        }}});
  return *responder;
}

std::string ReadAll(int socket) {
  std::string all;
  char buffer[4096];
  for (ssize_t got = 1; got > 0;) {
    got = recv(socket, buffer, sizeof(buffer), 0);
    if (got > 0) all.append(buffer, static_cast<size_t>(got));
  }
  return all;
}

// What the server answers to a client that says this and nothing more.
std::string Answer(std::string_view request) {
  int ends[2];
  Require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "sockets can be made");
  Require(send(ends[0], request.data(), request.size(), MSG_DONTWAIT | MSG_NOSIGNAL) ==
              static_cast<ssize_t>(request.size()),
          "a request fits the kernel's buffer");
  shutdown(ends[0], SHUT_WR);
  auto channel = std::make_unique<internal::Channel>(ends[1]);
  Responder().Serve(channel);
  channel.reset();
  std::string answer = ReadAll(ends[0]);
  close(ends[0]);
  return answer;
}

void Check(std::string_view request, const std::string& answer) {
  if (answer.empty()) return;
  Require(answer.starts_with("HTTP/1.1 "), "an answer is HTTP", answer);
  Require(answer.size() <= kPageBytes + kMaxHeaderBytes, "an answer is no longer than the page");
  const size_t headers = answer.find("\r\n\r\n");
  Require(headers != std::string::npos, "the headers of an answer end", answer);
  const bool page = answer.find("xxxxxxxxxx") != std::string::npos;
  Require(!page || request.find("GET") != request.npos, "the page is for those who ask for it");
  Require(!page || answer.find("HTTP/1.1 200 ") != std::string::npos, "the page is a success");
}

}  // namespace

std::vector<std::string> Seeds() {
  return {
      "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9400\r\nAccept-Encoding: gzip, br\r\n\r\n",
      "HEAD /healthz HTTP/1.1\r\nRange: bytes=0-1,-3,5-\r\nConnection: keep-alive\r\n\r\n",
      "GET /throws?a=%41&b=+%zz&%u0041=1 HTTP/1.0\r\n\r\n",
      "POST /metrics HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello",
      "POST /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nA: "
      "b\r\n\r\n",
      "POST / HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=B\r\nContent-Length: "
      "60\r\n\r\n"
      "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nv\r\n--B--\r\n",
      "POST / HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 7\r\n"
      "Content-Encoding: gzip\r\n\r\na=1&b=2",
      "OPTIONS * HTTP/1.1\r\nAccept: text/plain;version=0.0.4;q=1,*/*;q=0.1\r\n\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
  };
}

}  // namespace ptqwatch::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ptqwatch::fuzz;  // NOLINT
  if (size > kMaxBytes) return 0;
  const std::string_view request(reinterpret_cast<const char*>(data), size);
  Check(request, Answer(request));
  return 0;
}
