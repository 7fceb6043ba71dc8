#include "base/status_macros.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace ptqwatch::internal {
namespace status_macros_test {

absl::Status Step(const absl::Status& result, int* runs) {
  ++*runs;
  return result;
}

absl::Status TwoSteps(const absl::Status& first, const absl::Status& second, int* runs) {
  PTQWATCH_RETURN_IF_ERROR(Step(first, runs));
  if (*runs > 0) PTQWATCH_RETURN_IF_ERROR(Step(second, runs));
  return absl::OkStatus();
}

TEST(ReturnIfError, StopsAtTheFirstError) {
  int runs = 0;
  EXPECT_TRUE(TwoSteps(absl::OkStatus(), absl::OkStatus(), &runs).ok());
  EXPECT_EQ(runs, 2);
  runs = 0;
  EXPECT_EQ(TwoSteps(absl::NotFoundError("a"), absl::OkStatus(), &runs), absl::NotFoundError("a"));
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(TwoSteps(absl::OkStatus(), absl::AbortedError("b"), &runs), absl::AbortedError("b"));
}

absl::StatusOr<int> Sum(const absl::StatusOr<int>& a, const absl::StatusOr<int>& b) {
  PTQWATCH_ASSIGN_OR_RETURN(const int left, a);
  int right = 0;
  PTQWATCH_ASSIGN_OR_RETURN(right, b);
  return left + right;
}

TEST(AssignOrReturn, AssignsOrReturnsTheStatus) {
  EXPECT_EQ(*Sum(2, 3), 5);
  EXPECT_EQ(Sum(absl::NotFoundError("a"), 3).status(), absl::NotFoundError("a"));
  EXPECT_EQ(Sum(2, absl::AbortedError("b")).status(), absl::AbortedError("b"));
}

TEST(AssignOrReturn, MovesTheValue) {
  const auto run = []() -> absl::StatusOr<std::unique_ptr<std::string>> {
    PTQWATCH_ASSIGN_OR_RETURN(
        std::unique_ptr<std::string> text,
        absl::StatusOr<std::unique_ptr<std::string>>(std::make_unique<std::string>("moved")));
    return text;
  };
  EXPECT_EQ(**run(), "moved");
}

TEST(AssignOrReturn, MayBeUsedInALambdaInsideItsExpression) {
  const auto run = []() -> absl::StatusOr<int> {
    PTQWATCH_ASSIGN_OR_RETURN(const int value, [&]() -> absl::StatusOr<int> {
      PTQWATCH_ASSIGN_OR_RETURN(const int inner, absl::StatusOr<int>(4));
      PTQWATCH_RETURN_IF_ERROR(absl::OkStatus());
      return inner + 1;
    }());
    return value;
  };
  EXPECT_EQ(*run(), 5);
}

}  // namespace status_macros_test
}  // namespace ptqwatch::internal
