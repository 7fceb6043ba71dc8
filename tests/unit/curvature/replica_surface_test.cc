#include "curvature/replica_surface.h"

#include <gmock/gmock.h>

#include "ATen/TensorOperators.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/zeros.h"
#include "ptqwatch/function_subject.h"

namespace ptqwatch::internal {
namespace replica_surface_test {

using ::testing::HasSubstr;

struct Line {
  Line() {
    weight = at::arange(1, 5, at::kFloat);
    batches = {{at::arange(4, at::kFloat)}};
    subject = MakeFunctionSubject({.live = {{"w", weight, true}},
                                   .losses = [](const TensorMap& p, const Batch& b) -> LossValues {
                                     return (p.at("w") * b[0]).square();
                                   },
                                   .probe = batches});
    table = *MakeTensorTable(subject->LiveTensors());
    auto created = Replica::Create(subject.get(), table, {&batches[0]});
    EXPECT_TRUE(created.ok()) << created.status();
    replica = *std::move(created);
    replica->Load({weight});
  }
  at::Tensor weight;
  std::vector<Batch> batches;
  std::unique_ptr<Subject> subject;
  TensorTable table;
  std::unique_ptr<Replica> replica;
};

TEST(ReplicaLease, ThatCannotRestoreEndsQuietlyAndNoOtherIsGivenUntilALoad) {
  Line line;
  at::Tensor working = line.replica->table().entries[0].tensor;
  const uint64_t before = line.replica->generation();
  {
    auto lease = line.replica->Use({{{0, at::zeros({4})}}});
    ASSERT_TRUE(lease.ok()) << lease.status();
    // Copying back throws, as it does on a device that has failed.
    at::NoGradGuard no_grad;
    working.resize_({2});
  }
  working.resize_({4});
  EXPECT_GT(line.replica->generation(), before + 1);
  const auto refused = line.replica->Use({});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("could not be put back"));
  EXPECT_FALSE(ReplicaSurface::Create(line.replica.get(), {0}, &line.batches, 4).ok());

  line.replica->Load({line.weight});
  EXPECT_TRUE(line.replica->Use({}).ok());
  EXPECT_TRUE(working.equal(line.weight));
}

}  // namespace replica_surface_test
}  // namespace ptqwatch::internal
