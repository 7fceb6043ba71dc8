#include <gmock/gmock.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "ATen/ops/ones.h"
#include "ptqwatch/subject.h"

namespace ptqwatch {
namespace batch_test {

TEST(Batch, ThrowsForATensorThatItDoesNotHave) {
  Batch batch = {at::ones({2})};
  EXPECT_TRUE(batch[0].is_same(std::as_const(batch)[0]));
  try {
    (void)std::as_const(batch)[1];
    FAIL();
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "the batch has 1 tensor, so batch[1] does not exist");
  }
  EXPECT_THROW(batch[1] = at::ones({1}), std::out_of_range);
}

TEST(Batch, IsWhatATrainerHasAsVectors) {
  const at::Tensor x = at::ones({2});
  const std::vector<std::vector<at::Tensor>> plain = {{x, x}, {x}};
  const Batches batches = plain;
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[0].size(), 2u);
  EXPECT_TRUE(batches[1][0].is_same(x));
  const Batch batch = plain[0];
  const std::vector<at::Tensor>& tensors = batch;
  EXPECT_EQ(tensors.size(), 2u);
}

}  // namespace batch_test
}  // namespace ptqwatch
