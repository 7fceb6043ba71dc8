#include "cuda/lost_context.h"

#include <gtest/gtest.h>

namespace ptqwatch::internal {
namespace lost_context_test {

TEST(LostContext, IsToldFromOtherErrors) {
  const absl::Status lost = LostContextError("an illegal memory access");
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(IsLostContext(lost));
  const absl::Status copy = lost;
  EXPECT_TRUE(IsLostContext(copy));
  EXPECT_FALSE(IsLostContext(absl::UnavailableError("an illegal memory access")));
  EXPECT_FALSE(IsLostContext(absl::OkStatus()));
}

}  // namespace lost_context_test
}  // namespace ptqwatch::internal
