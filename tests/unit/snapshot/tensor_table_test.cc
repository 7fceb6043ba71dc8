#include "snapshot/tensor_table.h"

#include <gmock/gmock.h>

#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"

namespace ptqwatch::internal {
namespace tensor_table_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TensorTable Table(const std::vector<NamedTensor>& tensors) {
  auto table = MakeTensorTable(tensors);
  EXPECT_TRUE(table.ok()) << table.status();
  return *std::move(table);
}

TEST(TensorTable, GroupsTiedTensorsByHandleAndByMemory) {
  const at::Tensor a = at::ones({2, 3});
  const at::Tensor same_memory = a.detach();
  const TensorTable table =
      Table({{"emb", a}, {"b", at::ones({4})}, {"head", a}, {"x", same_memory}});
  EXPECT_EQ(table.entries.size(), 2u);
  EXPECT_THAT(table.index, ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(table.entries[0].aliases, ElementsAre("head", "x"));
  EXPECT_EQ(table.parameters(), 10);
}

TEST(TensorTable, KeepsViewsOfOneFlatBufferApart) {
  const at::Tensor flat = at::ones({10});
  const TensorTable table =
      Table({{"a", flat.slice(0, 0, 6).view({2, 3})}, {"b", flat.slice(0, 6)}});
  EXPECT_EQ(table.entries.size(), 2u);
}

TEST(TensorTable, RefusesPartialOverlapGapsAndNothing) {
  const at::Tensor flat = at::ones({10});
  auto overlap = MakeTensorTable({{"a", flat.slice(0, 0, 6)}, {"b", flat.slice(0, 4)}});
  ASSERT_FALSE(overlap.ok());
  EXPECT_THAT(std::string(overlap.status().message()), HasSubstr("'a' and 'b'"));
  auto gaps = MakeTensorTable({{"strided", flat.slice(0, 0, 10, 2)}});
  EXPECT_FALSE(gaps.ok());
  EXPECT_FALSE(MakeTensorTable({}).ok());
  EXPECT_FALSE(MakeTensorTable({{"buffer", at::ones({2}), false}}).ok());
}

TEST(TensorTable, SkipsUndefinedTensors) {
  EXPECT_EQ(Table({{"none", at::Tensor()}, {"a", at::ones({1})}}).names,
            std::vector<std::string>{"a"});
}

TEST(CheckSameLayout, NamesTheFirstDifference) {
  const at::Tensor tied = at::ones({2, 3});
  const TensorTable live = Table({{"a", tied}, {"b", tied}, {"c", at::ones({4})}});
  const auto message = [&](const std::vector<NamedTensor>& replica) {
    return std::string(CheckSameLayout(live, Table(replica)).message());
  };
  const at::Tensor own = at::zeros({2, 3});
  EXPECT_EQ(message({{"a", own}, {"b", own}, {"c", at::zeros({4})}}), "");
  EXPECT_THAT(message({{"a", own}, {"b", own}}), HasSubstr("'c'"));
  EXPECT_THAT(message({{"a", own}, {"b", own}, {"d", at::zeros({4})}}), HasSubstr("'d'"));
  EXPECT_THAT(message({{"a", own}, {"b", own}, {"c", at::zeros({5})}}), HasSubstr("[5]"));
  EXPECT_THAT(message({{"a", own}, {"b", own}, {"c", at::zeros({4}, at::kDouble)}}),
              HasSubstr("Double"));
  EXPECT_THAT(message({{"a", own}, {"b", at::zeros({2, 3})}, {"c", at::zeros({4})}}),
              HasSubstr("ties"));
  EXPECT_THAT(message({{"a", tied}, {"b", tied}, {"c", at::zeros({4})}}), HasSubstr("shares"));
}

}  // namespace tensor_table_test
}  // namespace ptqwatch::internal
