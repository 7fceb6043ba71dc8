#include "base/strings.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace ptqwatch::internal {
namespace strings_test {

TEST(StrCat, TakesStringViewsAndStatuses) {
  const std::string_view view = "view";
  EXPECT_EQ(StrCat(), "");
  EXPECT_EQ(StrCat("a ", view, " ", std::string("b"), " ", 3, " ", 0.5), "a view b 3 0.5");
  EXPECT_EQ(StrCat("failed: ", absl::NotFoundError("no file")), "failed: no file");
  EXPECT_EQ(StrCat(absl::OkStatus()), "");
}

TEST(StrFormat, TakesStringViewsAndStatuses) {
  const std::string_view view = "view";
  EXPECT_EQ(StrFormat("%-6s|%4.1f|%d", view, 2.25, int64_t{7}), "view  | 2.2|7");
  // Qualified: with a status among the arguments, an unqualified call also finds absl's.
  EXPECT_EQ(internal::StrFormat("%s: %s", "failed", absl::NotFoundError("no file")),
            "failed: no file");
}

TEST(Message, ViewsTheMessageOfAStatus) {
  const absl::Status status = absl::InvalidArgumentError("bits is 5");
  EXPECT_EQ(Message(status), std::string_view("bits is 5"));
  EXPECT_EQ(Message(absl::OkStatus()), std::string_view());
}

}  // namespace strings_test
}  // namespace ptqwatch::internal
