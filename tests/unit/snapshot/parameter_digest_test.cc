#include "snapshot/parameter_digest.h"

#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/ones.h"
#include "base/digest.h"
#include "ptqwatch/function_subject.h"

namespace ptqwatch::internal {
namespace parameter_digest_test {

struct ParameterDigestTest : ::testing::Test {
  ParameterDigestTest() {
    subject = MakeFunctionSubject(
        {.live = {{"w", weight, true}, {"half", half, true}, {"count", count, false}},
         .losses = [](const TensorMap& w, const Batch& b) -> LossValues {
           return at::mm(b[0], w.at("w")) + w.at("half").sum().to(at::kFloat);
         },
         .probe = {batch}});
    replica = *Replica::Create(subject.get(), *MakeTensorTable(subject->LiveTensors()), {&batch});
  }
  std::string Digest() {
    replica->Load({weight, half, count});
    return *DigestOfParameters(*replica, {});
  }

  const Batch batch = {at::ones({2, 3})};
  at::Tensor weight = at::arange(6, at::kFloat).view({2, 3}).t();  // dense, not contiguous
  at::Tensor half = at::ones({4}, at::kBFloat16);
  at::Tensor count = at::ones({1});
  std::unique_ptr<Subject> subject;
  std::unique_ptr<Replica> replica;
};

TEST_F(ParameterDigestTest, SeesEveryBitOfTheParametersAlone) {
  const std::string before = Digest();
  EXPECT_EQ(before.size(), 32u);
  EXPECT_EQ(Digest(), before);
  count.fill_(7);
  EXPECT_EQ(Digest(), before);
  half[3] = -half[3];
  const std::string other = Digest();
  EXPECT_NE(other, before);
  half[3] = -half[3];
  weight[2][1] = 5.0000005f;
  EXPECT_NE(Digest(), before);
  EXPECT_NE(Digest(), other);
  weight[2][1] = 5;
  EXPECT_EQ(Digest(), before);
}

TEST_F(ParameterDigestTest, IsOfTheSnapshotWhateverTheReplicaHolds) {
  const std::string before = Digest();
  const auto lease = replica->Use({{0, at::ones({3, 2})}});
  EXPECT_EQ(*DigestOfParameters(*replica, {}), before);
}

TEST_F(ParameterDigestTest, NamesTheParameterThatDiffers) {
  std::vector<ParameterDigest> before;
  replica->Load({weight, half, count});
  EXPECT_EQ(*DigestOfParameters(*replica, {}, &before), Digest()) << "the same as without them";
  ASSERT_EQ(before.size(), 2u);
  EXPECT_EQ(before[0].name, "w");
  EXPECT_EQ(before[1].name, "half");
  EXPECT_EQ(before[0].digest.size(), 16u);
  half[3] = -half[3];
  replica->Load({weight, half, count});
  std::vector<ParameterDigest> after;
  DigestOfParameters(*replica, {}, &after).IgnoreError();
  EXPECT_EQ(after[0], before[0]);
  EXPECT_NE(after[1].digest, before[1].digest);
}

TEST_F(ParameterDigestTest, IsTheSameInPieces) {
  // Longer than a piece, and no multiple of it.
  const at::Tensor longer = at::arange(100'003, at::kFloat).view({100'003, 1});
  const Batch row = {at::ones({2, 100'003})};
  auto long_subject =
      MakeFunctionSubject({.live = {{"w", longer, true}},
                           .losses = [](const TensorMap& w, const Batch& b) -> LossValues {
                             return at::mm(b[0], w.at("w"));
                           },
                           .probe = {row}});
  replica =
      *Replica::Create(long_subject.get(), *MakeTensorTable(long_subject->LiveTensors()), {&row});
  internal::Digest whole;
  whole.AddBytes(longer.const_data_ptr(), longer.nbytes());
  std::vector<ParameterDigest> each;
  EXPECT_EQ(*DigestOfParameters(*replica, {}, &each), whole.Hex());
  ASSERT_EQ(each.size(), 1u);
  EXPECT_EQ(each[0].digest, whole.Hex().substr(0, 16));
  replica.reset();
}

TEST_F(ParameterDigestTest, CanBeCancelled) {
  ExecutionContext context;
  context.cancel.Cancel();
  EXPECT_EQ(DigestOfParameters(*replica, context).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace parameter_digest_test
}  // namespace ptqwatch::internal
