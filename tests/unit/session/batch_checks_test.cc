#include "session/batch_checks.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "ATen/TensorOperators.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/full.h"
#include "ATen/ops/full_like.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/ones.h"
#include "ptqwatch/function_subject.h"
#include "ptqwatch/offline/check_subject.h"
#include "session/model_session.h"
#include "snapshot/finite.h"
#include "support/fake_clock.h"

namespace ptqwatch::internal {
namespace batch_checks_test {

using ::testing::HasSubstr;

// Squares of x w, one a row.
struct BatchChecksTest : ::testing::Test {
  using Reduce = std::function<LossValues(const at::Tensor&)>;
  std::unique_ptr<Subject> Make(Reduce reduce) {
    return MakeFunctionSubject({.live = {{"w", at::ones({2}), true}},
                                .losses =
                                    [reduce](const TensorMap& w, const Batch& b) {
                                      return reduce(at::matmul(b[0], w.at("w")).square());
                                    },
                                .probe = probe,
                                .calibration = {probe[0]}});
  }
  std::string Mistake(Reduce reduce, double max_seconds = 10) {
    opened = nullptr;  // before its subject
    subject = Make(std::move(reduce));
    opened = ModelSession::Open(
        *subject, {.probe = true, .calibration = true, .max_check_seconds = max_seconds});
    return std::string(opened.status().message());
  }
  static LossValues Each(const at::Tensor& values) { return values; }

  Batches probe = {
      {at::arange(14, at::kFloat).view({7, 2})}, {at::ones({3, 2})}, {at::ones({3, 2})}};
  std::unique_ptr<Subject> subject;
  absl::StatusOr<std::unique_ptr<ModelSession>> opened = nullptr;
};

TEST_F(BatchChecksTest, RefusesASumOverTheBatch) {
  const auto sum = [](const at::Tensor& values) { return LossValues(values.sum()); };
  EXPECT_THAT(Mistake(sum), HasSubstr("losses returns a sum over the batch: 1631 for 7 sequences, "
                                      "107 for the first 3 of them"));
  EXPECT_THAT(std::string(CheckSubject(*Make(sum), probe[0]).status().message()),
              HasSubstr("a sum over the batch"));
}

TEST_F(BatchChecksTest, TakesMeansAndWhatCannotBeCut) {
  EXPECT_EQ(Mistake(Each), "");
  EXPECT_EQ(Mistake([](const at::Tensor& values) { return LossValues(values.mean()); }), "");
  EXPECT_EQ(Mistake([](const at::Tensor& values) { return LossValues(values.max()); }), "");
  probe = {{at::ones({1, 2})}};
  EXPECT_EQ(Mistake([](const at::Tensor& values) { return LossValues(values.sum()); }), "");
}

// Rows of zeros are masked out.
TEST_F(BatchChecksTest, TakesNoMeanForASumBecauseAHalfIsMasked) {
  probe[0][0].narrow(0, 0, 3).fill_(0);
  EXPECT_EQ(Mistake([](const at::Tensor& values) {
              return LossValues(values.sum() / (values != 0).sum().clamp_min(1));
            }),
            "");
}

TEST_F(BatchChecksTest, NamesTheBatchWhoseLossWeightsAreUnusable) {
  const auto weighted = [](double weight) {
    return [weight](const at::Tensor& values) {
      const bool last = values.size(0) == 2;
      return LossValues(values, at::full_like(values, last ? weight : 0.5));
    };
  };
  probe[2][0] = at::ones({2, 2});
  EXPECT_EQ(Mistake(weighted(2)), "");
  EXPECT_EQ(Mistake(weighted(0)), "");
  for (const double weight : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(Mistake(weighted(weight)),
                HasSubstr("probe batch 2: losses returned LossValues::weights of which 2 of 2 are "
                          "negative, NaN or infinite; the batch was Float [2, 2]"));
  }
}

TEST_F(BatchChecksTest, NamesTheBatchWhoseLossesAreNotFinite) {
  probe[2][0] = at::full({3, 2}, std::numeric_limits<float>::infinity());
  EXPECT_THAT(Mistake(Each),
              HasSubstr("probe batch 2: the losses are not finite: 3 of 3 values are "
                        "NaN or infinite; the batch was Float [3, 2]"));
  EXPECT_EQ(Mistake(Each, /*max_seconds=*/0), "");
  EXPECT_EQ((*opened)->unchecked(), "");
}

TEST_F(BatchChecksTest, SaysIfTheWeightsAreNotFinite) {
  probe[0][0].fill_(std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(Mistake(Each), HasSubstr("the losses are not finite: 7 of 7 values"));
  EXPECT_THAT(Mistake(Each), ::testing::Not(HasSubstr("weight")));
  probe[0][0].fill_(1);
  const at::Tensor weight = at::full({2}, std::numeric_limits<float>::quiet_NaN());
  const std::vector<NamedTensor> live = {{"w", weight, true}};
  EXPECT_THAT(std::string(CheckFiniteLosses({weight}, probe[0], *MakeTensorTable(live)).message()),
              HasSubstr("as is a weight: 'w' has 2 non-finite values"));
}

TEST_F(BatchChecksTest, StopsInTime) {
  testing::FakeClock clock;
  const auto slow = [&clock](const at::Tensor& values) -> LossValues {
    clock.Advance(std::chrono::seconds(4));
    return values;
  };
  EXPECT_EQ(Mistake(slow), "");
  const std::vector<Batch> batches(5, probe[0]);
  Replica& replica = (*opened)->replica();
  EXPECT_EQ(*CheckEachBatch(replica, {{"probe", &batches}}, 100, &clock), "");
  EXPECT_EQ(*CheckEachBatch(replica, {{"probe", &batches, 1}, {"curvature", &batches}}, 10, &clock),
            "3 of 5 probe batches, 4 of 5 curvature batches (28 s)");
}

TEST_F(BatchChecksTest, RefusesAClosureThatChangesABuffer) {
  const at::Tensor count = at::ones({1});
  const auto changing =
      MakeFunctionSubject({.live = {{"w", at::ones({2}), true}, {"count", count, false}},
                           .losses =
                               [](const TensorMap& w, const Batch& b) {
                                 w.at("count").add_(1);
                                 return LossValues(at::matmul(b[0], w.at("w")));
                               },
                           .probe = probe});
  EXPECT_THAT(std::string(CheckSubject(*changing, probe[0]).status().message()),
              HasSubstr("losses changes the replica's buffer 'count', which it may only read"));
}

}  // namespace batch_checks_test
}  // namespace ptqwatch::internal
