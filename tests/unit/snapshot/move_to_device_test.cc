#include "snapshot/move_to_device.h"

#include <gtest/gtest.h>

#include "ATen/ops/arange.h"
#include "ATen/ops/ones.h"

namespace ptqwatch::internal {
namespace move_to_device_test {

// The one other device that every build has; it keeps no values.
const at::Device kElsewhere(at::kMeta);

TEST(CopiesOnDevice, HaveTheStridesAndTiesOfTheTensors) {
  const at::Tensor weight = at::arange(12, at::kFloat).view({3, 4}).requires_grad_(true);
  const at::Tensor transposed = weight.detach().t();
  const at::Tensor part = weight.detach().narrow(0, 1, 2);
  const at::Tensor other = at::ones({2}, at::kInt);
  const std::vector<at::Tensor> copies = CopiesOnDevice(
      {{"w", weight}, {"t", transposed}, {"part", part}, {"b", other, false}, {}}, kElsewhere);
  ASSERT_EQ(copies.size(), 5u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(copies[i].device(), kElsewhere);
  EXPECT_TRUE(copies[1].is_alias_of(copies[0]));
  EXPECT_TRUE(copies[2].is_alias_of(copies[0]));
  EXPECT_FALSE(copies[3].is_alias_of(copies[0]));
  EXPECT_EQ(copies[1].strides(), transposed.strides());
  EXPECT_EQ(copies[2].storage_offset(), 4);
  EXPECT_EQ(copies[3].scalar_type(), at::kInt);
  EXPECT_FALSE(copies[4].defined());
}

TEST(CheckOwnMemory, RefusesToMoveWhatBelongsToTheLiveModel) {
  const at::Tensor live = at::ones({4});
  const TensorTable table = *MakeTensorTable({{"w", live}});
  EXPECT_TRUE(CheckOwnMemory({{"w", at::ones({4})}}, table, kElsewhere).ok());
  for (const at::Tensor& shared : {live, live.narrow(0, 1, 2)}) {
    const absl::Status status = CheckOwnMemory({{"w", shared}}, table, kElsewhere);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find("shares the memory of 'w'"), std::string::npos);
  }
}

TEST(MoveToDevice, LeavesWhatIsThere) {
  at::Tensor weight = at::ones({3});
  const void* const memory = weight.const_data_ptr();
  MoveToDevice({{"w", weight}, {"undefined", at::Tensor()}}, at::Device(at::kCPU));
  EXPECT_EQ(weight.const_data_ptr(), memory);
}

}  // namespace move_to_device_test
}  // namespace ptqwatch::internal
