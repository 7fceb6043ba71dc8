#include "snapshot/finite.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <string>

#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"

namespace ptqwatch::internal {
namespace finite_test {

using ::testing::HasSubstr;

TensorTable Table() { return *MakeTensorTable({{"w", at::ones({4, 4})}, {"v", at::ones({3})}}); }

TEST(CheckFinite, NamesTheFirstTensorThatIsNot) {
  const TensorTable table = Table();
  EXPECT_TRUE(CheckFinite(table).ok());
  table.entries[1].tensor[1] = std::nan("");
  const absl::Status status = CheckFinite(table);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'v' has 1 non-finite"));
}

TEST(CheckFinite, LooksAtTheAskedEntriesAlone) {
  const TensorTable table = Table();
  table.entries[1].tensor[0] = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(CheckFinite(table, {0}).ok());
  EXPECT_FALSE(CheckFinite(table, {0, 1}).ok());
  // Both signs, whose sum is NaN.
  table.entries[1].tensor[1] = -std::numeric_limits<double>::infinity();
  EXPECT_FALSE(CheckFinite(table, {1}).ok());
}

TEST(CheckFinite, ASumThatOverflowsIsNotAnInfinity) {
  const TensorTable table =
      *MakeTensorTable({{"w", at::full({8}, std::numeric_limits<float>::max())}});
  EXPECT_TRUE(CheckFinite(table, {0}).ok());
}

}  // namespace finite_test
}  // namespace ptqwatch::internal
