#include "staging/whole_tensors.h"

#include <errno.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snapshot/tensor_table.h"

namespace ptqwatch::internal {
namespace {

using ::testing::HasSubstr;

// Memory of ranks, with the values of their tensors.
class WholeTensorsTest : public ::testing::Test {
 protected:
  void AddRank(const std::vector<NamedTensor>& listed) {
    const TensorTable table = *MakeLiveTable(listed, Parts::kAllowed);
    auto [layout, bytes] = LayoutOf(table, listed);
    memory_.push_back(std::make_unique<SharedMemory>(*SharedMemory::Make(bytes, "", 1, 0)));
    layouts_.push_back(std::make_unique<std::vector<SharedTensor>>(std::move(layout)));
    const std::vector<NamedTensor> shared = memory_.back()->Tensors(*layouts_.back());
    for (size_t i = 0; i < shared.size(); ++i) at::Tensor(shared[i].tensor).copy_(listed[i].tensor);
  }
  absl::StatusOr<WholeTensors> Make() const {
    std::vector<WholeTensors::Rank> ranks;
    for (size_t i = 0; i < memory_.size(); ++i) {
      ranks.push_back({static_cast<int64_t>(i), memory_[i].get(), layouts_[i].get()});
    }
    return WholeTensors::Make(ranks);
  }
  std::string Error() const { return std::string(Make().status().message()); }
  // The part of `whole` in rows [begin, end).
  static NamedTensor Rows(const std::string& name, const at::Tensor& whole, int64_t begin,
                          int64_t end) {
    return {name, whole.slice(0, begin, end).clone(), true, whole.sizes().vec(),
            std::vector<int64_t>{begin, 0}};
  }
  // The elements [begin, end) of the flattened whole.
  static NamedTensor Run(const std::string& name, const at::Tensor& whole, int64_t begin,
                         int64_t end) {
    return {name, whole.flatten().slice(0, begin, end).clone(), true, whole.sizes().vec(), {begin}};
  }

  const at::Tensor whole_ = at::arange(70, at::kFloat).view({7, 10});

 private:
  std::vector<std::unique_ptr<SharedMemory>> memory_;
  std::vector<std::unique_ptr<std::vector<SharedTensor>>> layouts_;
};

TEST_F(WholeTensorsTest, AreMadeOfRowsOfWhichThereMayBeNone) {
  AddRank({Rows("w", whole_, 0, 4), {"scale", at::full({}, 2.0F), false}});
  AddRank({Rows("w", whole_, 4, 7), {"scale", at::full({}, 2.0F), false}});
  AddRank({Rows("w", whole_, 7, 7), {"scale", at::full({}, 2.0F), false}});
  const auto made = Make();
  ASSERT_TRUE(made.ok()) << made.status();
  made->Assemble();
  ASSERT_EQ(made->tensors().size(), 2);
  EXPECT_TRUE(made->tensors()[0].tensor.equal(whole_));
  EXPECT_FALSE(made->tensors()[1].is_parameter);
  EXPECT_EQ(made->bytes(), (std::map<int64_t, int64_t>{{0, 164}, {1, 120}}));
}

TEST_F(WholeTensorsTest, AreMadeOfBoxesOfWhichReplicasAreEqual) {
  for (const int64_t row : {0, 0, 3, 3}) {
    for (const int64_t column : {0, 4}) {
      const int64_t rows = row == 0 ? 3 : 4;
      const int64_t columns = column == 0 ? 4 : 6;
      AddRank({{"w",
                whole_.narrow(0, row, rows).narrow(1, column, columns).clone(),
                true,
                {7, 10},
                {row, column}}});
    }
  }
  const auto made = Make();
  ASSERT_TRUE(made.ok()) << made.status();
  made->Assemble();
  EXPECT_TRUE(made->tensors()[0].tensor.equal(whole_));
  EXPECT_EQ(made->bytes().size(), 4);
}

TEST_F(WholeTensorsTest, AreMadeOfRunsOfElements) {
  AddRank({Run("w", whole_, 0, 33)});
  AddRank({Run("w", whole_, 33, 70)});
  const auto made = Make();
  ASSERT_TRUE(made.ok()) << made.status();
  made->Assemble();
  EXPECT_TRUE(made->tensors()[0].tensor.equal(whole_));
}

TEST_F(WholeTensorsTest, KeepTies) {
  NamedTensor first = Rows("embedding", whole_, 0, 4);
  NamedTensor tied = first;
  tied.name = "head";
  AddRank({first, tied});
  AddRank({Rows("embedding", whole_, 4, 7)});
  const auto made = Make();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(made->tensors()[0].tensor.is_same(made->tensors()[1].tensor));
}

TEST_F(WholeTensorsTest, ListWhatAnyRankHas) {
  AddRank({{"expert.0", at::ones({2, 2}), true, {2, 2}, {0, 0}}});
  AddRank({{"expert.1", at::ones({2, 2}), true, {2, 2}, {0, 0}}});
  const auto made = Make();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->tensors().size(), 2);
}

TEST_F(WholeTensorsTest, AreRefusedIfAPartIsMissing) {
  AddRank({Rows("w", whole_, 0, 4)});
  AddRank({Rows("w", whole_, 4, 6)});
  EXPECT_THAT(Error(), HasSubstr("have 60 of the 70 elements of 'w'"));
}

TEST_F(WholeTensorsTest, AreRefusedIfPartsOverlap) {
  AddRank({Rows("w", whole_, 0, 4)});
  AddRank({Rows("w", whole_, 3, 7)});
  EXPECT_THAT(Error(), HasSubstr("'w' of rank 1 overlaps with the part of rank 0"));
}

TEST_F(WholeTensorsTest, AreRefusedIfAPartDoesNotFit) {
  AddRank({{"w", at::ones({4, 10}), true, {7, 10}, {4, 0}}});
  EXPECT_THAT(Error(), HasSubstr("a part of shape [4, 10] at [4, 0], which does not fit into [7, "
                                 "10]"));
}

TEST_F(WholeTensorsTest, AreRefusedIfRanksDifferInTypeShapeOrTies) {
  AddRank({Rows("w", whole_, 0, 4)});
  AddRank({Rows("w", whole_.to(at::kDouble), 4, 7)});
  EXPECT_THAT(Error(), HasSubstr("'w' of rank 1 is of shape [7, 10] and Double, and on other ranks "
                                 "of [7, 10] and Float"));
}

TEST_F(WholeTensorsTest, AreRefusedIfTiesDiffer) {
  AddRank({Rows("a", whole_, 0, 4), Rows("b", whole_, 0, 4)});
  NamedTensor first = Rows("a", whole_, 4, 7);
  NamedTensor tied = first;
  tied.name = "b";
  AddRank({first, tied});
  EXPECT_THAT(Error(), HasSubstr("'b' of rank 1 is tied to another tensor than on other ranks"));
}

TEST_F(WholeTensorsTest, AreRefusedIfOneRankTiesWhatOthersDoNot) {
  NamedTensor first = Rows("a", whole_, 0, 4);
  NamedTensor tied = first;
  tied.name = "b";
  AddRank({first, tied});
  AddRank({Rows("a", whole_, 4, 7), Rows("b", whole_, 4, 7)});
  EXPECT_THAT(Error(), HasSubstr("'b' of rank 1 is tied to another tensor on other ranks"));
}

TEST_F(WholeTensorsTest, AreMadeOfScalarsThatOneRankHas) {
  AddRank({{"scale", at::full({1}, 3.0F), true, {}, {0}}, Rows("w", whole_, 0, 7)});
  AddRank({{"scale", at::empty({0}), true, {}, {1}}});
  const auto made = Make();
  ASSERT_TRUE(made.ok()) << made.status();
  made->Assemble();
  EXPECT_EQ(made->tensors()[0].tensor.dim(), 0);
  EXPECT_EQ(made->tensors()[0].tensor.item<float>(), 3);
}

TEST(TensorTable, RefusesPartsUnlessTheyAreAllowed) {
  const std::vector<NamedTensor> part = {{"w", at::ones({2, 3}), true, {4, 3}, {0, 0}}};
  EXPECT_THAT(std::string(MakeTensorTable(part).status().message()),
              HasSubstr("'w' is a part of one that is sharded over ranks"));
  EXPECT_TRUE(MakeTensorTable(part, Parts::kAllowed).ok());
  // A rank may have only empty parts.
  EXPECT_TRUE(
      MakeLiveTable({{"w", at::empty({0, 3}), true, {4, 3}, {4, 0}}}, Parts::kAllowed).ok());
}

// A process that maps it would end by SIGBUS.
TEST(SharedMemory, CannotBeCutShort) {
  const absl::StatusOr<SharedMemory> memory = SharedMemory::MakeFor(/*content_bytes=*/4096, "");
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_NE(ftruncate(memory->file(), 0), 0);
  EXPECT_EQ(errno, EPERM);
}

}  // namespace
}  // namespace ptqwatch::internal
