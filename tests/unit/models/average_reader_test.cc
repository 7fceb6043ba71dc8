#include "models/average_reader.h"

#include <string>
#include <vector>

#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "ATen/ops/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/weight_reader.h"

namespace ptqwatch::internal {
namespace average_reader_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

MapReader ReaderOf(const at::Tensor& w) {
  return MapReader({{"bias", at::full({2}, 1.0f)}, {"w", w}});
}

TEST(AverageReader, SumsInFloat64AndRoundsOnce) {
  // In float32, 1e8 + 1 is 1e8 again.
  const MapReader a = ReaderOf(at::tensor({1e8f, 1.0f})), b = ReaderOf(at::tensor({1.0f, 2.0f})),
                  c = ReaderOf(at::tensor({-1e8f, 4.5f}));
  const auto mean = AverageReader::Create({{"a", &a}, {"b", &b}, {"c", &c}});
  ASSERT_TRUE(mean.ok()) << mean.status();
  EXPECT_EQ(mean->Names(), (std::vector<std::string>{"bias", "w"}));
  EXPECT_EQ(*mean->Shape("w"), std::vector<int64_t>{2});
  EXPECT_TRUE(at::equal(*mean->Read("w"), at::tensor({static_cast<float>(1.0 / 3), 2.5f})));
  EXPECT_TRUE(at::equal(*mean->ReadRows("w", {1}), at::tensor({2.5f})));
}

TEST(AverageReader, RefusesOtherTensorsByName) {
  const MapReader a = ReaderOf(at::tensor({1.0f, 2.0f})), longer = ReaderOf(at::full({3}, 1.0f)),
                  less({{"w", at::tensor({1.0f, 2.0f})}});
  EXPECT_THAT(std::string(AverageReader::Create({{"a", &a}, {"b", &less}}).status().message()),
              AllOf(HasSubstr("'a'"), HasSubstr("'b'"), HasSubstr("'bias'")));
  EXPECT_THAT(
      std::string(
          AverageReader::Create({{"a", &a}, {"b", &longer}})->Shape("w").status().message()),
      AllOf(HasSubstr("'w' is [2] in 'a' and [3] in 'b'")));
  EXPECT_FALSE(AverageReader::Create({}).ok());
  EXPECT_TRUE(absl::IsNotFound(AverageReader::Create({{"a", &a}})->Read("gone").status()));
}

}  // namespace average_reader_test
}  // namespace ptqwatch::internal
