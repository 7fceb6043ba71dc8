#include "session/mean_batches.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/ones.h"
#include "c10/util/Exception.h"
#include "ptqwatch/function_subject.h"
#include "session/model_session.h"

namespace ptqwatch::internal {
namespace mean_batches_test {

class CutMeanBatchesTest : public ::testing::Test {
 protected:
  using Reduction = std::function<at::Tensor(const at::Tensor&)>;

  // The probe batches of a session with a loss of `reduce`d values, one a row.
  std::vector<Batch> Cut(std::vector<int64_t> rows, Reduction reduce) {
    FunctionSubjectOptions options;
    options.live = {{"w", at::ones({4}), true}};
    options.losses = [reduce](const TensorMap& w, const Batch& b) -> LossValues {
      return reduce((b[0] * w.at("w")).square().sum(-1));
    };
    int64_t first = 0;
    for (int64_t count : rows) {
      options.probe.push_back({at::arange(first, first + count * 4, at::kFloat).view({count, 4})});
      first += count * 4;
    }
    probe_ = options.probe;
    subject_ = MakeFunctionSubject(std::move(options));
    auto session = ModelSession::Open(*subject_, {.probe = true});
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? (*session)->probe() : std::vector<Batch>();
  }

  std::vector<Batch> probe_;
  std::unique_ptr<Subject> subject_;
};

at::Tensor Mean(const at::Tensor& values) { return values.mean(); }

TEST_F(CutMeanBatchesTest, CutsIntoPiecesOfEqualSizeAndLosesNothing) {
  const std::vector<Batch> cut = Cut({16, 16}, Mean);
  ASSERT_EQ(cut.size(), 16u);
  std::vector<at::Tensor> pieces;
  for (const Batch& piece : cut) pieces.push_back(piece[0]);
  EXPECT_TRUE(at::equal(at::cat(pieces), at::cat({probe_[0][0], probe_[1][0]})));
  EXPECT_EQ(Cut({6}, Mean).size(), 6u);
  EXPECT_EQ(Cut({20}, Mean).size(), 5u);
}

TEST_F(CutMeanBatchesTest, LeavesOneValueForEachRow) {
  EXPECT_EQ(Cut({16}, [](const at::Tensor& values) { return values; }).size(), 1u);
}

TEST_F(CutMeanBatchesTest, KeepsBatchesWhoseLossIsNotAMeanOverTheRows) {
  EXPECT_EQ(Cut({16}, [](const at::Tensor& values) { return values.max(); }).size(), 1u);
}

// Rows that begin with 0 are masked out. The pieces of the first batch alone would have its mean.
TEST_F(CutMeanBatchesTest, LeavesAllIfTheRowsOfALaterBatchCountDifferently) {
  FunctionSubjectOptions options;
  options.live = {{"w", at::ones({4}), true}};
  options.losses = [](const TensorMap& w, const Batch& b) -> LossValues {
    const at::Tensor mask = (b[0].select(1, 0) != 0).to(at::kFloat);
    const at::Tensor losses = (b[0] * w.at("w")).square().sum(-1) * mask;
    return losses.sum() / mask.sum().clamp_min(1);
  };
  options.probe = {
      {at::ones({16, 4})}, {at::ones({16, 4})}, {at::arange(64, at::kFloat).view({16, 4})}};
  const auto pieces = [&] {
    subject_ = MakeFunctionSubject(options);
    auto session = ModelSession::Open(*subject_, {.probe = true, .max_check_seconds = 100});
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? (*session)->probe().size() : 0;
  };
  EXPECT_EQ(pieces(), 3u);
  options.probe[2][0].add_(1);  // nothing is masked
  EXPECT_EQ(pieces(), 24u);
}

TEST_F(CutMeanBatchesTest, LeavesAModelThatWantsWholeBatches) {
  EXPECT_EQ(Cut({16},
                [](const at::Tensor& values) {
                  TORCH_CHECK(values.size(0) == 16, "this model wants batches of 16");
                  return values.mean();
                })
                .size(),
            1u);
}

TEST_F(CutMeanBatchesTest, LeavesBatchesOfDifferentSizes) {
  EXPECT_EQ(Cut({16, 8}, Mean).size(), 2u);
  EXPECT_EQ(Cut({7}, Mean).size(), 7u);
  EXPECT_EQ(Cut({11}, Mean).size(), 1u);  // a prime
}

}  // namespace mean_batches_test
}  // namespace ptqwatch::internal
