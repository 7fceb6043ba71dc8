#include "request_filter.h"

#include <optional>
#include <string>

#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace request_filter_test {

// What passes, however the request is cut into pieces; nullopt where it is refused.
std::optional<std::string> Filtered(const std::string& request) {
  std::optional<std::string> whole;
  for (const size_t piece : {request.size(), size_t{1}, size_t{7}}) {
    RequestFilter filter;
    std::string passed;
    bool ok = true;
    for (size_t begin = 0; ok && begin < request.size(); begin += piece) {
      ok = filter.Pass(std::string_view(request).substr(begin, piece), passed);
    }
    const std::optional<std::string> now = ok ? std::optional(passed) : std::nullopt;
    if (piece == request.size()) {
      whole = now;
    } else {
      EXPECT_EQ(now, whole) << piece;
    }
  }
  return whole;
}

std::string Long(size_t size) { return std::string(size, 'a'); }

TEST(RequestFilter, LeavesOutHeadersThatNobodyAsksFor) {
  EXPECT_EQ(
      Filtered("GET / HTTP/1.1\r\nHost: x\r\nCookie: a=b\r\nRange: bytes=0-1\r\nAccept: */*\r\n"
               "\r\n"),
      "GET / HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n");
}

TEST(RequestFilter, LeavesThemOutHoweverLong) {
  EXPECT_EQ(Filtered("GET / HTTP/1.1\r\nCookie: " + Long(50000) + "\r\nHost: x\r\n\r\n"),
            "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
}

TEST(RequestFilter, KnowsNamesInAnyCaseAndNoOthers) {
  EXPECT_EQ(
      Filtered("GET / HTTP/1.1\r\nhOST: x\r\n Range: a\r\nHost : y\r\n: z\r\nHosts: w\r\n\r\n"),
      "GET / HTTP/1.1\r\nhOST: x\r\n\r\n");
}

// A line that continues the one before has no known name, whatever follows.
TEST(RequestFilter, LeavesOutFoldedLines) {
  EXPECT_EQ(Filtered("GET / HTTP/1.1\r\nCookie: a\r\n Host: x\r\nHost: y\r\n\tRange: b\r\n\r\n"),
            "GET / HTTP/1.1\r\nHost: y\r\n\r\n");
}

TEST(RequestFilter, PassesABodyOn) {
  EXPECT_EQ(Filtered("POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nCookie: a\n"),
            "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nCookie: a\n");
}

// httplib does not take a line feed alone for the end of the headers: then neither does the filter.
TEST(RequestFilter, GoesOnAfterALoneLineFeed) {
  EXPECT_EQ(Filtered("GET / HTTP/1.1\r\n\nRange: a\r\nnonsense\nRange: b\r\n\r\n"),
            "GET / HTTP/1.1\r\n\nnonsense\n\r\n");
}

TEST(RequestFilter, RefusesLongLinesOfWhatItPasses) {
  for (const std::string& line :
       {"GET /" + Long(1024), "GET / HTTP/1.1\r\nHost: " + Long(1020),
        "GET / HTTP/1.1\r\nAccept-Encoding: " + Long(1020), "GET / HTTP/1.1\r\n" + Long(1025),
        "POST / HTTP/1.1\r\n\r\n" + Long(1025)}) {
    EXPECT_EQ(Filtered(line), std::nullopt) << line.substr(0, 40);
  }
  EXPECT_TRUE(Filtered("GET / HTTP/1.1\r\nAuthorization: " + Long(1000) + "\r\n\r\n").has_value());
}

}  // namespace request_filter_test
}  // namespace ptqwatch::internal
