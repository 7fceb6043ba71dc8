#include "http/http_message.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace http_message_test {

using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

HttpRequest For(std::string_view target) {
  HttpRequest request;
  request.path = "old";
  request.parameters = {{"old", ""}};
  SetTarget(request, target);
  return request;
}

TEST(SetTarget, TakesPathAndParametersApart) {
  const HttpRequest request = For("/api/v1/reports?after=3&run=a%2Fb+c&run=&x");
  EXPECT_EQ(request.path, "/api/v1/reports");
  EXPECT_THAT(request.parameters, UnorderedElementsAre(Pair("after", "3"), Pair("run", "a/b c"),
                                                       Pair("run", ""), Pair("x", "")));
}

TEST(SetTarget, LeavesAPathWithoutAQueryAlone) {
  for (const char* target : {"/", "/metrics", "/metrics?", "/metrics?&&"}) {
    EXPECT_THAT(For(target).parameters, IsEmpty()) << target;
  }
  EXPECT_EQ(For("/a+b").path, "/a+b");
  EXPECT_EQ(For("").path, "");
}

TEST(SetTarget, DecodesWhatIsEncodedAndNothingElse) {
  EXPECT_EQ(For("/%41%e2%82%ac%00b").path, std::string("/A\xE2\x82\xAC\0b", 7));
  EXPECT_EQ(For("/%").path, "/%");
  EXPECT_EQ(For("/%4").path, "/%4");
  EXPECT_EQ(For("/%zz%2").path, "/%zz%2");
  EXPECT_EQ(For("/%2541").path, "/%41");
  EXPECT_THAT(For("/?a%3Db=c=d%26").parameters, UnorderedElementsAre(Pair("a=b", "c=d&")));
}

}  // namespace http_message_test
}  // namespace ptqwatch::internal
