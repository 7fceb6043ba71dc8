#include "snapshot/parameter_digest.h"

#include <gmock/gmock.h>

#include <memory>
#include <string>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/ones.h"
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

TEST_F(ParameterDigestTest, CanBeCancelled) {
  ExecutionContext context;
  context.cancel.Cancel();
  EXPECT_EQ(DigestOfParameters(*replica, context).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace parameter_digest_test
}  // namespace ptqwatch::internal
