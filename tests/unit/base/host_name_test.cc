#include "base/host_name.h"

#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace host_name_test {

TEST(HostName, TellsThisMachineFromOthers) {
  ASSERT_FALSE(HostName().empty());
  EXPECT_FALSE(IsOtherHost(HostName()));
  EXPECT_TRUE(IsOtherHost(HostName() + "x"));
  EXPECT_FALSE(IsOtherHost("")) << "unknown";
}

}  // namespace host_name_test
}  // namespace ptqwatch::internal
