#include "capture/weight_finder.h"

#include <gtest/gtest.h>

#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/from_blob.h"

namespace ptqwatch::internal {
namespace weight_finder_test {

/// A weight [4, 6], a bias in the same storage behind it, and memory for copies of the weight.
struct WeightFinderTest : ::testing::Test {
  WeightFinderTest() {
    table.entries.push_back({"w", {}, true, flat.narrow(0, 0, 24).view({4, 6})});
    table.entries.push_back({"b", {}, true, flat.narrow(0, 24, 6)});
    table.entries.push_back({"buffer", {}, false, buffer});
  }
  at::Tensor weight() const { return table.entries[0].tensor; }
  /// A tensor in `memory`, which an allocator may give to another tensor once this one is gone.
  at::Tensor InMemory() { return at::from_blob(memory.data(), {4, 6}, at::kFloat); }

  const at::Tensor flat = at::arange(30, at::kFloat);
  const at::Tensor buffer = at::arange(6, at::kFloat);
  std::vector<float> memory = std::vector<float>(24);
  TensorTable table;
};

TEST_F(WeightFinderTest, TellsParametersOfOneStorageApart) {
  const WeightFinder finder(table);
  EXPECT_EQ(finder.Find(weight())->entry, 0);
  EXPECT_EQ(finder.Find(weight().t())->entry, 0);
  EXPECT_EQ(finder.Find(flat.narrow(0, 23, 1))->entry, 0);
  EXPECT_EQ(finder.Find(flat.narrow(0, 24, 1))->entry, 1);
  EXPECT_FALSE(finder.Find(buffer));
  EXPECT_FALSE(finder.Find(weight().clone()));
  EXPECT_FALSE(finder.Find(at::Tensor()));
}

TEST_F(WeightFinderTest, KnowsACopyAndItsTransposeAsViewsOfTheWeight) {
  WeightFinder finder(table);
  const at::Tensor copy = weight().t().contiguous();
  finder.NoteCopy(*finder.Find(weight().t()), copy);
  for (const bool turned : {false, true}) {
    const auto found = finder.Find(turned ? copy.t() : copy);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->entry, 0);
    EXPECT_FALSE(found->rewritten);
    ASSERT_TRUE(found->view.defined());
    EXPECT_EQ(found->view.const_data_ptr(), weight().const_data_ptr());
    EXPECT_EQ(Layout::Of(found->view), Layout::Of(turned ? weight() : weight().t()));
  }
  // A part is still its, but no view says which.
  const auto part = finder.Find(copy.narrow(0, 0, 2));
  ASSERT_TRUE(part);
  EXPECT_FALSE(part->view.defined());
}

TEST_F(WeightFinderTest, NoticesThatACopyWasWrittenTo) {
  WeightFinder finder(table);
  at::Tensor copy = weight().clone();
  finder.NoteCopy(*finder.Find(weight()), copy);
  EXPECT_FALSE(finder.Find(copy)->rewritten);
  copy.narrow(0, 1, 1).mul_(0);
  EXPECT_TRUE(finder.Find(copy)->rewritten);
  EXPECT_TRUE(finder.Find(copy.t())->rewritten);
}

TEST_F(WeightFinderTest, ForgetsACopyThatIsGoneWhateverComesIntoItsMemory) {
  WeightFinder finder(table);
  at::Tensor copy = InMemory();
  finder.NoteCopy(*finder.Find(weight()), copy);
  EXPECT_TRUE(finder.Find(copy));
  copy.reset();
  // The same bytes, and for storage objects whatever address the allocator likes best.
  std::vector<at::Tensor> others;
  for (int i = 0; i < 100; ++i) {
    others.push_back(InMemory());
    EXPECT_FALSE(finder.Find(others.back()));
  }
}

TEST_F(WeightFinderTest, DoesNotKeepACopyAlive) {
  WeightFinder finder(table);
  bool freed = false;
  {
    const at::Tensor copy = at::from_blob(
        memory.data(), {4, 6}, [&freed](void*) { freed = true; }, at::kFloat);
    finder.NoteCopy(*finder.Find(weight()), copy);
  }
  EXPECT_TRUE(freed);
}

TEST_F(WeightFinderTest, TakesNoViewOfAWeightForACopy) {
  WeightFinder finder(table);
  // `contiguous` returns a contiguous tensor itself.
  finder.NoteCopy(*finder.Find(weight()), weight().contiguous());
  EXPECT_EQ(finder.Find(flat.narrow(0, 24, 6))->entry, 1);
}

}  // namespace weight_finder_test
}  // namespace ptqwatch::internal
